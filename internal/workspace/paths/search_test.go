package paths

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// nasty is a pattern that one long line keeps busy for hours.
var nasty = strings.Repeat(`(?:.{0,999}a)?`, 3) + "z"

// afterLeaving fails the test when a call does not return soon after its client left.
func afterLeaving(t *testing.T, call func(ctx context.Context) error) error {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- call(ctx) }()
	defer time.AfterFunc(100*time.Millisecond, leave).Stop() // in the midst of it
	select {
	case err := <-ended:
		return err
	case <-time.After(time.Minute):
		t.Fatal("the search goes on although its client left")
		return nil
	}
}

// TestSearchesEndWithTheirClients: not only between two lines or files, but within one.
func TestSearchesEndWithTheirClients(t *testing.T) {
	f, host := thread(t)
	w := filepath.Join(host, "workspace")
	put(t, filepath.Join(w, "long"), string(bytes.Repeat([]byte("b"), 9<<20)))
	deep := strings.Repeat("/"+strings.Repeat("d", 200), 15)
	mkdirs(t, w+deep)
	for i := range 100 {
		put(t, fmt.Sprint(w, deep, "/", i), "x")
	}
	if err := afterLeaving(t, func(ctx context.Context) error {
		m, err := f.Grep(ctx, ws, GrepOptions{Pattern: nasty, Regexp: true})
		if err == nil && !m.Truncated {
			return errors.New("it says that it looked at all")
		}
		return err
	}); err != nil {
		t.Errorf("grep: %v", err)
	}
	some := "{" + strings.Repeat("*d*,", 3) + "*}"
	if err := afterLeaving(t, func(ctx context.Context) error {
		l, err := f.Glob(ctx, ws, "**/"+some+some+some+some+"x")
		if err == nil && !l.Truncated {
			return errors.New("it says that it looked at all")
		}
		return err
	}); err != nil {
		t.Errorf("glob: %v", err)
	}
}

// TestSearchesThatTakeForEver are refused.
func TestSearchesThatTakeForEver(t *testing.T) {
	f, _ := thread(t)
	huge := strings.Repeat(`(?:.{0,999}a)?`, 70)
	_, err := f.Grep(t.Context(), ws, GrepOptions{Pattern: huge, Regexp: true})
	wantKind(t, err, sandbox.Invalid)
	stars := "{" + strings.Repeat("*,", 99) + "*}"
	_, err = f.Glob(t.Context(), ws, strings.Repeat(stars, 4))
	wantKind(t, err, sandbox.Invalid)
	_, err = f.Grep(t.Context(), ws, GrepOptions{Pattern: "a", Glob: strings.Repeat(stars, 4)})
	wantKind(t, err, sandbox.Invalid)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint(maxBraces)) {
		t.Errorf("%v", err)
	}
}

// TestSearchesWaitForTheirTurn, and do not begin without it.
func TestSearchesWaitForTheirTurn(t *testing.T) {
	f, _ := thread(t)
	runs, most := 0, 0
	f.search = func(context.Context) (func(), error) {
		runs++
		most = max(most, runs)
		return func() { runs-- }, nil
	}
	if _, err := f.Grep(t.Context(), ws, GrepOptions{Pattern: "a"}); err != nil {
		t.Error(err)
	}
	if _, err := f.Glob(t.Context(), ws, "*"); err != nil {
		t.Error(err)
	}
	if runs != 0 || most != 1 {
		t.Errorf("%d run, %d ran", runs, most)
	}
	full := sandbox.Errorf(sandbox.CapacityExceeded, "full")
	f.search = func(context.Context) (func(), error) { return nil, full }
	if _, err := f.Grep(t.Context(), ws, GrepOptions{Pattern: "a"}); !errors.Is(err, sandbox.CapacityExceeded) {
		t.Errorf("grep: %v", err)
	}
	if _, err := f.Glob(t.Context(), ws, "*"); !errors.Is(err, sandbox.CapacityExceeded) {
		t.Errorf("glob: %v", err)
	}
}

func TestBraces(t *testing.T) {
	for pattern, want := range map[string]string{
		"a": "a", "{a,b}": "a b", "x{a,b}{c,d}y": "xacy xady xbcy xbdy", "{a,{b,c}d}": "a bd cd", "{,a}": " a",
		`\{a,b\}`: `\{a,b\}`, "[{,}]": "[{,}]", "{[,],b}": "[,] b", `{a\,b,c}`: `a\,b c`, "{a}": "a",
	} {
		got := expand(pattern)
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%s stands for %q, want %q", pattern, got, want)
		}
	}
	if got := expand("{" + strings.Repeat("a,", maxBraces-1) + "b}"); len(got) != maxBraces {
		t.Errorf("%d patterns", len(got))
	}
	if got := expand("{" + strings.Repeat("a,", maxBraces) + "b}"); got != nil {
		t.Errorf("%d patterns", len(got))
	}
}

// FuzzBraces: a pattern matches what one of those matches that it stands for. Patterns come as JSON, so they are UTF-8; of
// others the library takes bytes that differ for the same.
func FuzzBraces(f *testing.F) {
	for _, pattern := range []string{"**/*.{ts,tsx}", "{a,b/*}/c", "x{,[{]}y", `{a\,,b}`, "{{a,b},c}*", "{*/,}?{d,e}"} {
		for _, name := range []string{"a/b.tsx", "b/x/c", "x{y", "a,", "cab", "q/wd"} {
			f.Add(pattern, name)
		}
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if checkGlob("pattern", pattern) != nil || !utf8.ValidString(pattern) || name == "" || len(name) > 30 || len(pattern) > 60 {
			return
		}
		all := expand(pattern)
		if all == nil {
			return
		}
		stars := strings.Count(pattern, "**")
		for _, p := range all {
			if !doublestar.ValidatePattern(p) || strings.Count(p, "**") > stars {
				return // * and * meet, which the library takes for no **
			}
		}
		if got, want := glob(all).fits(t.Context(), name), doublestar.MatchUnvalidated(pattern, name); got != want {
			t.Errorf("%q of %q: %v, want %v; %q", name, pattern, got, want, all)
		}
	})
}
