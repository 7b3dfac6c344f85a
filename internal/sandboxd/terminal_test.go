package sandboxd

import (
	"errors"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
)

// TestTerminal: a shell in a terminal, typed into and resized over a connection that breaks.
func TestTerminal(t *testing.T) {
	p := newPair(t)
	id := p.id()
	var r result
	typed := false
	var err error
	r.Exit, err = p.c.Run(t.Context(), &sandboxv1.RunRequest{
		ExecId: id, Shell: `echo "$TERM $(stty size)"; echo ready; read -r x; echo "$x $(stty size)"`,
		TimeoutMs: 30_000, Terminal: &sandboxv1.TerminalSize{Cols: 80, Rows: 24},
	}, func(e *sandboxv1.Event) error {
		if err := r.take(e); err != nil || typed || !strings.Contains(r.stdout, "ready") {
			return err
		}
		typed = true
		if err := p.c.Resize(t.Context(), id, sandbox.TerminalSize{Cols: 100, Rows: 40}); err != nil {
			return err
		}
		conn, err := p.ln.Conn(t.Context())
		if err != nil {
			return err
		}
		conn.Close()
		return p.c.WriteStdin(t.Context(), id, []byte("hello\n"), false)
	})
	if err != nil {
		t.Fatal(err)
	}
	p.want(r, 0, "xterm-256color 24 80\r\nready\r\nhello\r\nhello 40 100\r\n")
	if err := p.c.Resize(t.Context(), id, sandbox.TerminalSize{Cols: 1, Rows: 1}); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("resize after the end: %v", err)
	}
}

func TestTerminalRefused(t *testing.T) {
	p := newPair(t)
	for name, req := range map[string]*sandboxv1.RunRequest{
		"no size":  {Shell: "true", Terminal: &sandboxv1.TerminalSize{}},
		"too wide": {Shell: "true", Terminal: &sandboxv1.TerminalSize{Cols: 1<<16 + 80, Rows: 24}},
		"code":     {Code: &sandboxv1.Code{Language: "bash", Text: "true"}, Terminal: &sandboxv1.TerminalSize{Cols: 80, Rows: 24}},
	} {
		req.ExecId = p.id()
		if _, err := p.c.Run(t.Context(), req, func(*sandboxv1.Event) error { return nil }); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
