// Package boundedregexp matches the regular expressions of callers.
//
// Package regexp takes a time that grows with the length of the text, but also with the size of the compiled
// expression, and no match can be interrupted. A thousand bytes of expression compile to 150,000 instructions, which
// one line of ten megabytes keeps busy for hours. So this package bounds the size, and a long match ends with its
// context.
package boundedregexp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"regexp/syntax"
	"unicode/utf8"
)

// MaxInstructions is how large a compiled expression may be. Those of people have a few hundred at most.
const MaxInstructions = 10_000

// ErrTooLarge is wrapped by the error for an expression that is too large.
var ErrTooLarge = errors.New("the expression is too large")

// Regexp is a compiled expression of bounded size. Any number of goroutines may use it.
type Regexp struct {
	re   *regexp.Regexp
	size int
}

// Compile compiles an expression of at most MaxInstructions.
func Compile(expr string) (*Regexp, error) {
	size, err := Size(expr)
	if err != nil {
		return nil, err
	}
	if size > MaxInstructions {
		return nil, fmt.Errorf("%w: its repetitions make %d steps of it, at most %d are allowed", ErrTooLarge, size, MaxInstructions)
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil, err
	}
	return &Regexp{re: re, size: size}, nil
}

// Size returns about how many instructions an expression compiles to. It does not compile it.
func Size(expr string) (int, error) {
	tree, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return 0, err
	}
	return instructions(tree), nil
}

// most keeps the counts far from the end of an int.
const most = 1 << 40

func instructions(re *syntax.Regexp) int {
	n := 1
	switch re.Op {
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpCapture, syntax.OpConcat, syntax.OpAlternate, syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		n = 2
	}
	for _, sub := range re.Sub {
		n = min(most, n+instructions(sub))
	}
	if re.Op == syntax.OpRepeat {
		n *= max(1, re.Min+1, re.Max) // the parser bounds both
	}
	return min(most, n)
}

const (
	// direct is how many instructions a match may take that cannot be interrupted, together with the bytes of its text:
	// a tenth of a second.
	direct = 1 << 22
	// everyRunes is how often an interruptible match looks at its context.
	everyRunes = 64
)

// Work is the most that a match takes on a text of n bytes.
func (r *Regexp) Work(n int) int { return r.size * max(n, 1) }

// Match reports whether the text contains a match. An error is that of ctx.
func (r *Regexp) Match(ctx context.Context, text []byte) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if r.Work(len(text)) <= direct {
		return r.re.Match(text), nil
	}
	in := runes{ctx: ctx, text: text}
	matches := r.re.MatchReader(&in)
	return matches && in.err == nil, in.err
}

// MatchString is Match for a text that is known to be short enough for it: it cannot be interrupted.
func (r *Regexp) MatchString(text string) bool { return r.re.MatchString(text) }

// runes is a text that ends with its context.
type runes struct {
	ctx  context.Context //nolint:containedctx // of the one call of Match
	text []byte
	read int
	err  error
}

// ReadRune implements io.RuneReader.
func (r *runes) ReadRune() (rune, int, error) {
	if r.read++; r.read%everyRunes == 0 && r.err == nil {
		r.err = r.ctx.Err()
	}
	if r.err != nil || len(r.text) == 0 {
		return 0, 0, io.EOF
	}
	c, n := utf8.DecodeRune(r.text)
	r.text = r.text[n:]
	return c, n, nil
}
