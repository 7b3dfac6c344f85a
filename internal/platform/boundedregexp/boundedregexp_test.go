package boundedregexp

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"regexp/syntax"
	"strings"
	"testing"
)

func TestSize(t *testing.T) {
	for _, expr := range []string{
		`foo`, `a|b|cde`, `(?i)foo\s+bar`, `^\w+@[a-z.]{2,30}$`, `(a{3}b){10}`, `x*y+z?`, `(?:ab){2,}`, `\pL{5}`, ``, `(.{0,99}a)?`, `((x{7}){8}){9}`,
	} {
		tree, err := syntax.Parse(expr, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		prog, err := syntax.Compile(tree.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		size, err := Size(expr)
		if err != nil || size+4 < len(prog.Inst)/2 || size > 4*len(prog.Inst) {
			t.Errorf("%s: %d, %v; it compiles to %d", expr, size, err, len(prog.Inst))
		}
	}
}

func TestExpressionsAreBounded(t *testing.T) {
	for _, expr := range []string{strings.Repeat(`(?:.{0,999}a)?`, 70), `(?:x{999}y){1,1000}`, strings.Repeat(`\pL{999}`, 120)} {
		if _, err := Compile(expr); err == nil {
			t.Errorf("%.40s… is compiled", expr)
		}
	}
	if _, err := Compile(strings.Repeat(`(?:.{0,999}a)?`, 70)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%v", err)
	}
	if _, err := Compile(`(`); err == nil || errors.Is(err, ErrTooLarge) {
		t.Errorf("%v", err)
	}
}

// countdown ends after so many looks at it.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestLongMatchesEndWithTheirContext: this one would take hours.
func TestLongMatchesEndWithTheirContext(t *testing.T) {
	re, err := Compile(strings.Repeat(`(?:.{0,999}a)?`, 3) + "z")
	if err != nil {
		t.Fatal(err)
	}
	ctx := &countdown{Context: t.Context(), left: 10}
	if matches, err := re.Match(ctx, bytes.Repeat([]byte("b"), 10<<20)); matches || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", matches, err)
	}
	if ctx.left != -1 {
		t.Errorf("the context ended, and was looked at %d times more", -1-ctx.left)
	}
	// An end that comes too early is no match, although $ fits there.
	re, err = Compile(`b$`)
	if err != nil {
		t.Fatal(err)
	}
	ctx = &countdown{Context: t.Context(), left: 10}
	if matches, err := re.Match(ctx, append(bytes.Repeat([]byte("b"), 10<<20), 'c')); matches || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", matches, err)
	}
}

// FuzzMatch holds long texts, whose match can be interrupted, against package regexp.
func FuzzMatch(f *testing.F) {
	for _, expr := range []string{`a.c`, `(?i)ÄB`, `^x|y$`, `\bword\b`, `[^\x00-\x7f]`, `(?s).\xff`, `^$`, `(a|ab)(c|bcd)`, `\C`} {
		f.Add(expr, "xx abc word äb\xff y", 100)
	}
	f.Fuzz(func(t *testing.T, expr, text string, times int) {
		re, err := Compile(expr)
		if err != nil || len(text) > 100 || len(expr) > 100 {
			return
		}
		long := strings.Repeat(text, 1+(times&0xff))
		in := runes{ctx: t.Context(), text: []byte(long)}
		got, want := re.re.MatchReader(&in), regexp.MustCompile(expr).MatchString(long)
		if got != want {
			t.Errorf("%q in %q: %v, want %v", expr, long, got, want)
		}
	})
}
