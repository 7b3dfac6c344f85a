package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// loginSource is a source of which only the login is used.
type loginSource struct {
	toolSource
	configured string // redirect_uri of the configuration
	life       time.Duration
	fail       error
	redirected string
}

func (s *loginSource) beginLogin(_ context.Context, server, redirect string) (sandbox.ToolLogin, error) {
	if s.configured != "" {
		redirect = s.configured
	}
	return sandbox.ToolLogin{URL: "https://as.example/authorize?state=right&for=" + server, RedirectURI: redirect, Expires: time.Now().Add(s.life)}, nil
}

func (s *loginSource) finishLogin(_ context.Context, _, redirected string) error {
	s.redirected = redirected
	return s.fail
}

func newLoginDialog(s *loginSource, in string) (*loginDialog, *bytes.Buffer) {
	var out bytes.Buffer
	s.life = 30 * time.Second
	return &loginDialog{source: s, server: "crm", timeout: 10 * time.Second, in: strings.NewReader(in), out: &out}, &out
}

func TestLoginByPaste(t *testing.T) {
	s := &loginSource{}
	d, out := newLoginDialog(s, " http://127.0.0.1:8976/callback?code=c&state=right \n")
	if err := d.byPaste(t.Context(), loginPort); err != nil || s.redirected != "http://127.0.0.1:8976/callback?code=c&state=right" || !strings.Contains(out.String(), "https://as.example/authorize?") {
		t.Errorf("%v %s\n%s", err, s.redirected, out)
	}
	d, _ = newLoginDialog(s, "")
	var f *exit.Failure
	if err := d.byPaste(t.Context(), loginPort); !errors.As(err, &f) || f.Code != exit.Usage {
		t.Errorf("nothing pasted: %v", err)
	}
}

// browser asks for a page until a server listens.
func browser(t *testing.T, url string) (int, string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		res, err := http.Get(url)
		if err == nil {
			text, _ := io.ReadAll(res.Body)
			_ = res.Body.Close()
			return res.StatusCode, string(text)
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// TestLoginByBrowser: the browser comes back to where the configuration says. Another client that asks there
// does not end the login.
func TestLoginByBrowser(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	back := "http://" + ln.Addr().String() + "/oauth/back"
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	for _, fail := range []error{nil, errors.New("refused")} {
		s := &loginSource{configured: back, fail: fail}
		d, _ := newLoginDialog(s, "")
		done := make(chan error, 1)
		go func() { done <- d.byBrowser(t.Context(), 0, true) }()
		for _, wrong := range []string{"?state=wrong&code=x", "?code=x", "/other?state=right"} {
			if status, text := browser(t, back+wrong); status != http.StatusBadRequest || s.redirected != "" {
				t.Errorf("%s: %d %s", wrong, status, text)
			}
		}
		status, text := browser(t, back+"?code=c&state=right&iss=i")
		want := map[bool]string{true: "You are logged in", false: "failed"}[fail == nil]
		if (status == 200) != (fail == nil) || !strings.Contains(text, want) || s.redirected != back+"?code=c&state=right&iss=i" {
			t.Errorf("%d %s: %s", status, text, s.redirected)
		}
		if err := <-done; !errors.Is(err, fail) {
			t.Error(err)
		}
	}
}

// TestLoginUnanswered: no login waits for ever, and a port that is taken is not an error unless it was asked for.
func TestLoginUnanswered(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close() //nolint:errcheck // nothing came
	var port uint16
	if _, err := fmt.Sscanf(ln.Addr().String(), "127.0.0.1:%d", &port); err != nil {
		t.Fatal(err)
	}
	s := &loginSource{}
	d, _ := newLoginDialog(s, "")
	s.life = 50 * time.Millisecond
	if err := d.byBrowser(t.Context(), port, false); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	var f *exit.Failure
	if err := d.byBrowser(t.Context(), port, true); !errors.As(err, &f) || f.Code != exit.Usage {
		t.Error(err)
	}
}
