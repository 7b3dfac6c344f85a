package audit

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/audit/segment"
	"github.com/skerry-sandbox/skerry/internal/e2e/docblock"
)

// TestWithoutSkerry runs the script of docs/audit.md on a log, as it is and changed.
func TestWithoutSkerry(t *testing.T) {
	t.Parallel()
	for _, needed := range []string{"python3", "openssl"} {
		if _, err := exec.LookPath(needed); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
	}
	code := docblock.Marked(t)[0].Text
	work := t.TempDir()
	script, public, dir := filepath.Join(work, "verify.py"), filepath.Join(work, "audit.pub.pem"), filepath.Join(work, "audit")
	must(t, os.WriteFile(script, []byte(code), 0o600))
	key := testKey(1)
	der, err := x509.MarshalPKIXPublicKey(key.public().Key)
	must(t, err)
	must(t, os.WriteFile(public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600))
	l := openLog(t, Options{Dir: dir, SegmentBytes: 8 << 10, Signer: key})
	fill(t, l, 30)
	run := func(want string, good bool) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "python3", script, dir, public).CombinedOutput()
		if (err == nil) != good || !strings.Contains(string(out), want) {
			t.Errorf("%v: %s\nwant %q", err, out, want)
		}
	}
	must(t, l.Commit(t.Context(), fill(t, l, 1)[0]))
	waitFor(t, "signed", func() bool { return l.State().Unsigned == 0 })
	run("and signed to record ", true) // while it is written: with room at its end
	must(t, l.Close())
	run("and signed to record ", true)
	must(t, os.WriteFile(public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: otherDER(t)}), 0o600))
	run("and not signed by this key", true)

	path := filepath.Join(dir, l.Writer(), segment.Name(1))
	text, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, bytes.Replace(text, []byte("echo 1"), []byte("echo 2"), 1), 0o600))
	run("line 2: changed", false)
	lines := bytes.SplitAfter(text, []byte("\n"))
	must(t, os.WriteFile(path, bytes.Join(append(lines[:2:2], lines[3:]...), nil), 0o600))
	run("line 3: not the next record", false)
}

func otherDER(t *testing.T) []byte {
	der, err := x509.MarshalPKIXPublicKey(testKey(2).public().Key)
	must(t, err)
	return der
}
