package contents

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/template/sbom"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// images are templates of an image each, which take a second to say what they are made of.
type images struct {
	mu    sync.Mutex
	asked []string // guarded by mu
	says  string
	err   error
}

func (*images) Image(_ context.Context, template string) (string, error) {
	if template == "none" {
		return "", sandbox.Errorf(sandbox.NotFound, "there is no template %q", template)
	}
	return "image-of-" + strings.TrimSuffix(template, "-too"), nil
}

func (i *images) Probe(ctx context.Context, template, script string) ([]byte, error) {
	i.mu.Lock()
	i.asked = append(i.asked, template)
	i.mu.Unlock()
	if script != sbom.Script {
		return nil, errors.New("another script")
	}
	select {
	case <-time.After(time.Second):
		return []byte(i.says), i.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

const says = "o\tdebian\t12\t\t\ndeb\tlibc6\t2.36\tamd64\tLGPL-2.1+\nend\n"

// TestSBOM: an image is looked at once, however many ask, and again when the list is old.
func TestSBOM(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &images{says: says}
		c := New(i, "v1", slog.New(slog.DiscardHandler))
		defer c.Close() //nolint:errcheck // never fails
		var all sync.WaitGroup
		for _, template := range []string{"base", "base", "base-too", "data"} {
			all.Go(func() {
				text, err := c.SBOM(t.Context(), template)
				if err != nil || !strings.Contains(string(text), "pkg:deb/debian/libc6@2.36") {
					t.Errorf("%s: %s, %v", template, text, err)
				}
			})
		}
		all.Wait()
		if len(i.asked) != 2 {
			t.Errorf("asked %v", i.asked)
		}
		time.Sleep(goodFor - time.Minute)
		if _, err := c.SBOM(t.Context(), "base"); err != nil || len(i.asked) != 2 {
			t.Errorf("asked %v, %v", i.asked, err)
		}
		time.Sleep(2 * time.Minute)
		if _, err := c.SBOM(t.Context(), "base"); err != nil || len(i.asked) != 3 {
			t.Errorf("asked %v, %v", i.asked, err)
		}
		if _, err := c.SBOM(t.Context(), "none"); !errors.Is(err, sandbox.NotFound) || len(i.asked) != 3 {
			t.Errorf("%v, asked %v", err, i.asked)
		}
	})
}

// TestFailures: an image that does not tell is not asked again at once, and a caller who leaves ends no look.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &images{says: "no list"}
		c := New(i, "v1", slog.New(slog.DiscardHandler))
		defer c.Close() //nolint:errcheck // never fails
		for range 3 {
			if _, err := c.SBOM(t.Context(), "base"); !errors.Is(err, sandbox.Unavailable) {
				t.Error(err)
			}
		}
		if len(i.asked) != 1 {
			t.Errorf("asked %v", i.asked)
		}
		time.Sleep(again + time.Second)
		i.says = says
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := c.SBOM(ctx, "base"); !errors.Is(err, sandbox.Unavailable) {
			t.Error(err)
		}
		if _, err := c.SBOM(t.Context(), "base"); err != nil || len(i.asked) != 2 {
			t.Errorf("%v, asked %v", err, i.asked)
		}
	})
}

// TestMany: what is remembered is bounded.
func TestMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(&images{says: says}, "v1", slog.New(slog.DiscardHandler))
		defer c.Close() //nolint:errcheck // never fails
		for n := range maxLists + 5 {
			if _, err := c.SBOM(t.Context(), strings.Repeat("x", n+1)); err != nil {
				t.Fatal(err)
			}
		}
		if len(c.lists) > maxLists {
			t.Errorf("%d lists are remembered", len(c.lists))
		}
	})
}
