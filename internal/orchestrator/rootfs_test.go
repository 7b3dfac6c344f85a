package orchestrator

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

func (d daemon) Stat(_ context.Context, r *connect.Request[sandboxv1.StatRequest]) (*connect.Response[sandboxv1.FileInfo], error) {
	if r.Msg.GetPath() != "/tmp/a" {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("no such file"))
	}
	return connect.NewResponse(&sandboxv1.FileInfo{Path: "/etc/passwd", Bytes: 3, Mode: 0o4755, ModifiedUnixMs: 1000}), nil
}

func (d daemon) ListDir(_ context.Context, r *connect.Request[sandboxv1.ListDirRequest]) (*connect.Response[sandboxv1.ListDirResponse], error) {
	name := map[string]string{"/tmp": "/tmp/a", "/odd": "../a"}[r.Msg.GetPath()]
	return connect.NewResponse(&sandboxv1.ListDirResponse{Items: []*sandboxv1.FileInfo{{Path: name}}}), nil
}

func (d daemon) WriteFile(_ context.Context, s *connect.ClientStream[sandboxv1.WriteFileRequest]) (*connect.Response[sandboxv1.FileInfo], error) {
	n := 0
	for s.Receive() {
		n += len(s.Msg().GetData())
	}
	if n > 10 {
		return nil, connect.NewError(connect.CodeResourceExhausted, errors.New("no space left on device"))
	}
	return connect.NewResponse(&sandboxv1.FileInfo{Bytes: int64(n)}), s.Err()
}

func (d daemon) ReadFile(_ context.Context, _ *connect.Request[sandboxv1.ReadFileRequest], s *connect.ServerStream[sandboxv1.FileChunk]) error {
	return s.Send(&sandboxv1.FileChunk{Data: []byte("abc")})
}

// TestRootFiles: what only a sandbox has is read and changed in it, starting one; changes are recorded, and what sandboxd says
// is data.
func TestRootFiles(t *testing.T) {
	t.Parallel()
	h := newHouse(t, daemon{})
	err := h.Roots.ReadSandbox(t.Context(), caller, "t", func(files paths.Tree) error {
		e, err := files.Stat(t.Context(), "/tmp/a")
		if err != nil || e.Path != "/tmp/a" || e.Bytes != 3 || e.Mode != "0755" || e.ModifiedAt.Unix() != 1 {
			t.Errorf("%+v, %v", e, err)
		}
		if _, err := files.Stat(t.Context(), "/tmp/b"); !errors.Is(err, sandbox.NotFound) {
			t.Errorf("not there: %v", err)
		}
		if l, err := files.List(t.Context(), "/tmp", 1, 10); err != nil || len(l.Items) != 1 || l.Items[0].Path != "/tmp/a" {
			t.Errorf("%+v, %v", l, err)
		}
		if l, err := files.List(t.Context(), "/odd", 1, 10); !errors.Is(err, sandbox.SandboxLost) {
			t.Errorf("a relative path is listed: %+v, %v", l, err)
		}
		var b bytes.Buffer
		if err := files.Read(t.Context(), "/tmp/a", &b); err != nil || b.String() != "abc" {
			t.Errorf("%q, %v", b.String(), err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) error {
		return h.Roots.ChangeSandbox(t.Context(), caller, "t", audit.ActionFileWrite, "/tmp/a", func(files paths.Tree) (int64, error) {
			return files.Write(t.Context(), "/tmp/a", strings.NewReader(text))
		})
	}
	if err := write("short"); err != nil {
		t.Error(err)
	}
	if err := write("longer than its disk"); !errors.Is(err, sandbox.QuotaExceeded) {
		t.Errorf("a full disk: %v", err)
	}
	records, _, err := h.audit.List(t.Context(), audit.Filter{Tenant: caller.Tenant, Action: audit.ActionFileWrite})
	outcomes := map[string]int{}
	for _, r := range records {
		if r.Phase == audit.PhaseResult && r.Subject == "/tmp/a" {
			outcomes[r.Outcome]++
		}
	}
	if err != nil || len(records) != 4 || outcomes["ok"] != 1 || len(outcomes) != 2 {
		t.Errorf("%d records, %v, %v", len(records), outcomes, err)
	}
	if err := h.Roots.ReadSandbox(t.Context(), caller, "../t", func(paths.Tree) error { return nil }); !errors.Is(err, sandbox.Invalid) {
		t.Errorf("a bad name of a thread: %v", err)
	}
}
