// Command conformance is the pack that sdk/packs/conformance describes, in Go.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/skerry-sandbox/skerry/sdk/go/packs"
)

type none struct{}

type text struct {
	Text string `json:"text"`
}

type numbers struct {
	A int `json:"a"`
	B int `json:"b"`
}

type sum struct {
	Sum int `json:"sum"`
}

type steps struct {
	N int `json:"n"`
}

type pause struct {
	Name string `json:"name"`
	MS   int    `json:"ms"`
}

type names struct {
	Names []string `json:"names"`
}

type size struct {
	Bytes int `json:"bytes"`
}

type who struct {
	Tenant string `json:"tenant"`
	User   string `json:"user"`
	Thread string `json:"thread"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	p := packs.New("conformance", "1.0.0")
	p.Description, p.MaxParallel = "What a provider promises", 4
	if err := errors.Join(answers(p), waits(p), changes(p)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	s := packs.Server{URL: os.Getenv("SKERRY_SERVER"), Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	if file := os.Getenv("SKERRY_SSH_KEY"); file != "" {
		s.Credential = packs.SSHKeyFile(file)
	} else if key := os.Getenv("SKERRY_KEY"); key != "" {
		s.Credential = packs.BearerKey(key)
	}
	var err error
	if s.TLS, err = transport(); err == nil {
		err = p.Serve(ctx, s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// transport returns what the environment says of TLS.
func transport() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if file := os.Getenv("SKERRY_CA"); file != "" {
		text, err := os.ReadFile(file) //nolint:gosec // whose program it is says which
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		c.RootCAs.AppendCertsFromPEM(text)
	}
	if file := os.Getenv("SKERRY_CERTIFICATE"); file != "" {
		own, err := tls.LoadX509KeyPair(file, os.Getenv("SKERRY_CERTIFICATE_KEY"))
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{own}
	}
	return c, nil
}

// answers adds the tools that answer at once.
func answers(p *packs.Pack) error {
	return errors.Join(
		packs.Tool(p, "echo", "Returns a text", func(_ context.Context, in text) (string, error) { return in.Text, nil }),
		packs.Tool(p, "add", "Adds two numbers", func(_ context.Context, in numbers) (sum, error) { return sum{in.A + in.B}, nil }),
		packs.Tool(p, "fail", "Fails", func(_ context.Context, in text) (string, error) { return "", errors.New(in.Text) }),
		packs.Tool(p, "crash", "Panics", func(context.Context, none) (string, error) { panic("as it was asked to") }),
		packs.Tool(p, "who", "Returns the caller", func(ctx context.Context, _ none) (who, error) { return who(packs.CallerOf(ctx)), nil }),
		packs.Tool(p, "large", "Returns a long text", func(_ context.Context, in size) (string, error) { return strings.Repeat("x", in.Bytes), nil }),
		packs.Tool(p, "options", "Has options", func(context.Context, none) (string, error) { return "options", nil },
			packs.Title("Has options"), packs.Timeout(2*time.Second), packs.Requires("crm"), packs.Disclosure("hidden"), packs.Annotations(map[string]any{"readOnlyHint": true})),
		packs.Tool(p, "steps", "Reports progress", func(ctx context.Context, in steps) (string, error) {
			for i := range in.N {
				packs.Progress(ctx, float64(i+1), float64(in.N), fmt.Sprintf("step %d", i+1))
			}
			return "done", nil
		}),
	)
}

// waits adds the tools about calls that end before their result.
func waits(p *packs.Pack) error {
	noted := make(chan []string, 1) // the names, for one call at a time
	noted <- []string{}
	return errors.Join(
		packs.Tool(p, "wait", "Waits", func(ctx context.Context, in pause) (string, error) {
			select {
			case <-time.After(time.Duration(in.MS) * time.Millisecond):
				return "waited", nil
			case <-ctx.Done():
				noted <- append(<-noted, in.Name)
				return "", ctx.Err()
			}
		}),
		packs.Tool(p, "noted", "Returns what wait noted", func(context.Context, none) (names, error) {
			all := <-noted
			noted <- all
			return names{all}, nil
		}),
	)
}

// changes adds the tools that change the pack.
func changes(p *packs.Pack) error {
	return errors.Join(
		packs.Tool(p, "grow", "Adds a tool", func(ctx context.Context, _ none) (string, error) {
			err := packs.Tool(p, "grown", "Was added", func(context.Context, none) (string, error) { return "grown", nil })
			if err != nil {
				return "", err
			}
			return "reloaded", p.Reload(ctx)
		}),
		packs.Tool(p, "spoil", "Adds a tool that the server refuses", func(ctx context.Context, _ none) (string, error) {
			err := packs.Tool(p, "not a name", "Is refused", func(context.Context, none) (string, error) { return "", nil })
			if err != nil {
				return "", err
			}
			err = p.Reload(ctx)
			p.Remove("not a name")
			if err == nil {
				return "", errors.New("the server took it")
			}
			return err.Error(), nil
		}),
	)
}
