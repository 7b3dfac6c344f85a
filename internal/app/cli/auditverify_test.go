package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/audit/archive"
)

// TestAuditVerifyArchive: a log whose beginning is archived is verified from its first record on, and as a whole with the archive.
func TestAuditVerifyArchive(t *testing.T) {
	dir, far := t.TempDir(), t.TempDir()
	l, err := audit.Open(audit.Options{Dir: dir, SegmentBytes: 8 << 10, Archive: archive.NewFolder(far), KeepSegments: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	for range 60 {
		if _, err := l.AppendSync(t.Context(), audit.Record{Tenant: "acme", Phase: audit.PhaseResult, Action: audit.ActionExec, Subject: strings.Repeat("x", 300)}); err != nil {
			t.Fatal(err)
		}
	}
	first := filepath.Join(dir, l.Writer(), "00000000000000000001.jsonl")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(first); err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("after a minute the first segment is there")
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	verify := func(args ...string) string {
		t.Helper()
		var out, stderr bytes.Buffer
		cmd := NewRoot()
		cmd.SetArgs(append([]string{"audit", "verify"}, args...))
		cmd.SetOut(&out)
		cmd.SetErr(&stderr)
		if err := cmd.Execute(); err != nil {
			t.Errorf("%q: %v\n%s%s", args, err, out.String(), stderr.String())
		}
		return out.String()
	}
	if out := verify("--segments", dir); !strings.Contains(out, "from record ") || !strings.Contains(out, "archived and removed") {
		t.Errorf("without the archive:\n%s", out)
	}
	if out := verify("--segments", dir, "--segments", far); strings.Contains(out, "from record ") || !strings.Contains(out, "ok: ") {
		t.Errorf("with the archive:\n%s", out)
	}
}
