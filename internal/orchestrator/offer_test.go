package orchestrator

import (
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestModeOutlivesTheSandbox: what a thread asked for when it acquired its sandbox still holds when the
// sandbox has ended; a thread that asked for nothing follows its tenant.
func TestModeOutlivesTheSandbox(t *testing.T) {
	h := newHouse(t, daemon{run: exits})
	h.o.CodeSettings = func(tenant string) sandbox.CodeSettings {
		s := sandbox.DefaultCodeSettings()
		if tenant == "coders" {
			s.Mode = sandbox.ModeCode
		}
		return s
	}
	want := func(c sandbox.Caller, thread, mode string) {
		t.Helper()
		if got, err := h.Offer(t.Context(), c, thread); err != nil || got.Mode != mode {
			t.Errorf("%s: mode %q, %v, want %q", thread, got.Mode, err, mode)
		}
		if p, err := h.Prompt(t.Context(), c, thread); err != nil || p.Mode != mode {
			t.Errorf("%s: prompt in mode %q, %v, want %q", thread, p.Mode, err, mode)
		}
	}
	coder := sandbox.Caller{Owner: sandbox.Owner{Tenant: "coders", User: "u"}}
	want(caller, "new", sandbox.ModeDirect)
	want(coder, "new", sandbox.ModeCode)
	if _, err := h.Acquire(t.Context(), caller, "t", sandbox.AcquireOptions{Mode: sandbox.ModeCode}); err != nil {
		t.Fatal(err)
	}
	want(caller, "t", sandbox.ModeCode)
	if err := h.ReleaseSandbox(t.Context(), caller, "t"); err != nil {
		t.Fatal(err)
	}
	want(caller, "t", sandbox.ModeCode)
	if _, err := h.Acquire(t.Context(), caller, "t", sandbox.AcquireOptions{Mode: sandbox.ModeDirect, Labels: map[string]string{"a": "b"}}); err != nil {
		t.Fatal(err)
	}
	want(caller, "t", sandbox.ModeDirect)
}
