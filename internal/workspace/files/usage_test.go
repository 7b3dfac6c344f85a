package files

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace"
)

// uids hands out uids from the first one on.
type uids struct{ n atomic.Int64 }

func (u *uids) NextUID(_ context.Context, first int) (int, error) {
	return first + int(u.n.Add(1)), nil
}

// TestUncountableFilesOfAnother: the files of a tenant are counted although one user has some that lie too deep, and the
// names of its threads are told to nobody else.
func TestUncountableFilesOfAnother(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("folders of threads belong to other uids: this needs root")
	}
	data := t.TempDir()
	f := workspace.New(workspace.Options{DataDir: data, UIDs: &uids{}})
	m := NewMeter(data, f)
	for user, depth := range map[string]int{"eve": 200, "ann": 1} {
		dir := f.Dir(sandbox.Thread{Owner: sandbox.Owner{Tenant: "acme", User: user}, ID: "of-" + user})
		_, err := f.Make(t.Context(), dir, func(files string, uid int) error {
			below := files + "/workspace" + strings.Repeat("/d", depth)
			return errors.Join(workspace.Fill(files, uid), os.MkdirAll(below, 0o755), os.WriteFile(files+"/workspace/f", make([]byte, 64<<10), 0o600))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n, err := m.Used(t.Context(), "acme", ""); err != nil || n < 64<<10 {
		t.Errorf("of the tenant: %d, %v", n, err)
	}
	if n, err := m.Used(t.Context(), "acme", "ann"); err != nil || n < 64<<10 {
		t.Errorf("of ann: %d, %v", n, err)
	}
	if _, err := m.Used(t.Context(), "acme", "eve"); !errors.Is(err, sandbox.QuotaExceeded) || !strings.Contains(err.Error(), "of-eve") {
		t.Errorf("of eve: %v", err)
	}
}
