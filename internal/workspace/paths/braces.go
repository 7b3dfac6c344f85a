package paths

import (
	"context"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// maxBraces bounds the patterns that the braces of one pattern stand for: {a,b}/{c,d} stands for four.
const maxBraces = 256

// expand returns the patterns that a pattern with braces stands for; nil when they are more than maxBraces. The library
// that matches would go through them within one call, which nothing can interrupt.
func expand(pattern string) []string {
	done := []string{}
	todo := []string{pattern}
	for len(todo) > 0 {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		from, to, commas := firstBraces(p)
		if from < 0 {
			done = append(done, p)
			continue
		}
		if len(done)+len(todo)+len(commas)+1 > maxBraces { // each of them stands for one at least
			return nil
		}
		start := from + 1
		for _, end := range append(commas, to) {
			todo = append(todo, p[:from]+p[start:end]+p[to+1:])
			start = end + 1
		}
	}
	return done
}

// firstBraces returns where the first braces of a valid pattern are, and the commas in them; from is -1 when it has none.
func firstBraces(p string) (from, to int, commas []int) {
	from = -1
	depth := 0
	for i := 0; i < len(p); i++ {
		switch p[i] {
		case '\\':
			i++
		case '[':
			i = classEnd(p, i)
		case '{':
			if depth++; depth == 1 {
				from = i
			}
		case ',':
			if depth == 1 {
				commas = append(commas, i)
			}
		case '}':
			if depth--; depth == 0 {
				return from, i, commas
			}
		}
	}
	return -1, -1, nil
}

// classEnd returns where the class ends that begins at i.
func classEnd(p string, i int) int {
	for i++; i < len(p) && p[i] != ']'; i++ {
		if p[i] == '\\' {
			i++
		}
	}
	return i
}

// glob is a pattern, as all that its braces stand for.
type glob []string

// newGlob refuses patterns that cannot match, and patterns that take too long.
func newGlob(field, pattern string) (glob, error) {
	if err := checkGlob(field, pattern); err != nil {
		return nil, err
	}
	all := expand(pattern)
	if all == nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "%s: its {} stand for more than %d patterns", field, maxBraces)
	}
	return all, nil
}

// fits reports whether a path matches; false when ctx has ended.
func (g glob) fits(ctx context.Context, rel string) bool {
	for _, pattern := range g {
		if ctx.Err() != nil {
			return false
		}
		if doublestar.MatchUnvalidated(pattern, rel) {
			return true
		}
	}
	return false
}
