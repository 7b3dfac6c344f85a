package paths

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/platform/boundedregexp"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Bounds of what Grep answers with.
const (
	maxLineBytes  = 2000
	maxMatchBytes = 4 << 20 // text of all matches together
)

// Grep looks for lines in the text files below a folder, or in one file. Files that are binary,
// larger than MaxGrepFileBytes or unreadable are passed over. It takes at most GrepBudget.
func (f *FS) Grep(ctx context.Context, name string, o GrepOptions) (Matches, error) {
	g, err := newGrep(o)
	if err != nil {
		return Matches{}, err
	}
	end, err := f.beginSearch(ctx)
	if err != nil {
		return Matches{}, err
	}
	defer end()
	p, err := f.space.resolve(name, how{follow: true})
	if err != nil {
		return Matches{}, err
	}
	defer p.close()
	ctx, cancel := context.WithTimeout(ctx, GrepBudget)
	defer cancel()
	g.ctx = ctx
	if !p.isDir() {
		if p.info == nil {
			return Matches{}, notFound(p.virtual)
		}
		err := g.file(&found{virtual: p.virtual, dir: p.dir, name: p.base, info: p.info})
		if err != nil && !errors.Is(err, errStop) {
			return Matches{}, err
		}
		return g.answer(err != nil), nil
	}
	w := &walk{ctx: ctx, space: f.space, depth: maxDepth, left: maxScan, visit: func(e *found) error {
		if e.isDir() || !g.wants(e.virtual[len(p.virtual):]) {
			return nil
		}
		return g.file(e)
	}}
	if err := w.run(p); err != nil {
		return Matches{}, err
	}
	return g.answer(w.truncated), nil
}

// grep is one search.
type grep struct {
	ctx     context.Context
	o       GrepOptions
	re      *boundedregexp.Regexp // nil: literal
	literal []byte
	glob    glob // nil: all files
	buf     bytes.Buffer
	items   []Match
	bytes   int
}

func newGrep(o GrepOptions) (*grep, error) {
	switch {
	case o.Pattern == "":
		return nil, sandbox.Errorf(sandbox.Invalid, "pattern is empty")
	case len(o.Pattern) > MaxPatternBytes:
		return nil, sandbox.Errorf(sandbox.Invalid, "pattern is longer than %d bytes", MaxPatternBytes)
	case o.Max < 0 || o.Max > MaxMatches:
		return nil, sandbox.Errorf(sandbox.Invalid, "max is 1 to %d", MaxMatches)
	case o.Context < 0 || o.Context > MaxContextLines:
		return nil, sandbox.Errorf(sandbox.Invalid, "context is 0 to %d", MaxContextLines)
	}
	if o.Max == 0 {
		o.Max = DefaultMatches
	}
	g := &grep{o: o, literal: []byte(o.Pattern), items: []Match{}}
	if o.Glob != "" {
		var err error
		if g.glob, err = newGlob("glob", o.Glob); err != nil {
			return nil, err
		}
	}
	if !o.Regexp && !o.IgnoreCase {
		return g, nil
	}
	expr := o.Pattern
	if !o.Regexp {
		expr = regexp.QuoteMeta(expr)
	}
	if o.IgnoreCase {
		expr = "(?i)" + expr
	}
	re, err := boundedregexp.Compile(expr)
	if errors.Is(err, boundedregexp.ErrTooLarge) {
		return nil, sandbox.Errorf(sandbox.Invalid, "pattern: %w", err)
	}
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "pattern is no RE2 expression: %w", err)
	}
	g.re = re
	return g, nil
}

// wants applies the glob to a path below the folder.
func (g *grep) wants(rel string) bool {
	rel = strings.TrimPrefix(rel, "/")
	if g.o.Glob == "" {
		return true
	}
	if !strings.Contains(g.o.Glob, "/") {
		rel = path.Base(rel)
	}
	return g.glob.fits(g.ctx, rel)
}

// file searches one file. errStop: enough was found, or the time is up.
func (g *grep) file(e *found) error {
	if !e.info.Mode().IsRegular() || e.info.Size() > MaxGrepFileBytes {
		return nil
	}
	file, _, err := openRegular(e.dir, e.name, e.virtual, os.O_RDONLY)
	if err != nil {
		return passOver(err)
	}
	defer file.Close() //nolint:errcheck // read-only
	g.buf.Reset()
	if _, err := g.buf.ReadFrom(io.LimitReader(file, MaxGrepFileBytes)); err != nil {
		return passOver(err)
	}
	text := g.buf.Bytes()
	if bytes.IndexByte(text[:min(len(text), sniffBytes)], 0) >= 0 {
		return nil
	}
	if g.re == nil && !bytes.Contains(text, g.literal) {
		return nil
	}
	return g.lines(e.virtual, text)
}

func (g *grep) lines(virtual string, text []byte) error {
	for n, start := 1, 0; start < len(text); n++ {
		end := start + lineLen(text[start:])
		line := bytes.TrimSuffix(text[start:end], []byte("\r"))
		matches, err := g.matches(line)
		if err != nil {
			return errStop
		}
		if matches {
			if len(g.items) == g.o.Max || g.bytes > maxMatchBytes {
				return errStop
			}
			g.add(Match{Path: virtual, Line: n, Text: shown(line), Before: g.before(text, start), After: g.after(text, end)})
		}
		if n%1024 == 0 && g.ctx.Err() != nil {
			return errStop
		}
		start = end + 1
	}
	return nil
}

func lineLen(rest []byte) int {
	if i := bytes.IndexByte(rest, '\n'); i >= 0 {
		return i
	}
	return len(rest)
}

// matches looks at one line, which may have MaxGrepFileBytes. An error is that of ctx.
func (g *grep) matches(line []byte) (bool, error) {
	if g.re != nil {
		return g.re.Match(g.ctx, line)
	}
	return bytes.Contains(line, g.literal), nil
}

func (g *grep) add(m Match) {
	g.bytes += len(m.Text)
	for _, side := range [][]string{m.Before, m.After} {
		for _, line := range side {
			g.bytes += len(line)
		}
	}
	g.items = append(g.items, m)
}

// before returns the lines before the line that begins at start, in their order.
func (g *grep) before(text []byte, start int) []string {
	var out []string
	for range g.o.Context {
		if start == 0 {
			break
		}
		end := start - 1
		start = bytes.LastIndexByte(text[:end], '\n') + 1
		out = append([]string{shown(text[start:end])}, out...)
	}
	return out
}

// after returns the lines after the line that ends at end.
func (g *grep) after(text []byte, end int) []string {
	var out []string
	for range g.o.Context {
		start := end + 1
		if start >= len(text) {
			break
		}
		end = start + lineLen(text[start:])
		out = append(out, shown(text[start:end]))
	}
	return out
}

// shown cuts a line at maxLineBytes, and never inside a character.
func shown(line []byte) string {
	line = bytes.TrimSuffix(line, []byte("\r"))
	if len(line) > maxLineBytes {
		cut := maxLineBytes
		for cut > maxLineBytes-utf8.UTFMax && !utf8.RuneStart(line[cut]) {
			cut--
		}
		line = line[:cut]
	}
	return strings.ToValidUTF8(string(line), "\uFFFD")
}

func (g *grep) answer(truncated bool) Matches {
	return Matches{Items: g.items, Truncated: truncated}
}
