package e2e

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/platform/s3/s3test"
)

// TestWorkspaces: a server is killed, and another one with a disk of its own goes on with its threads from the bucket, byte
// for byte. The first one comes back with an old disk and a sandbox that still runs, and goes on from where the other
// one was; what the sandbox of that one then does is not acknowledged. What is deleted on one is gone on both.
func TestWorkspaces(t *testing.T) {
	whole(t, TestRestart)
	t.Parallel()
	store := s3test.Start(t)
	store.Put("workspaces", "other/x", nil)
	env := []string{
		"SKERRY_S3_ENDPOINT=" + store.Endpoint, "SKERRY_S3_ACCESS_KEY=" + s3test.AccessKey, "SKERRY_S3_SECRET_KEY=" + s3test.SecretKey,
		"SKERRY_S3_REGION=" + s3test.Region, "SKERRY_S3_ADDRESSES=127.0.0.0/8",
		"SKERRY_WORKSPACES=s3://workspaces/skerry", "SKERRY_WORKSPACES_ENCRYPT=true", "SKERRY_SECRETS_KEY_FILE=" + filepath.Join(t.TempDir(), "keys.txt"),
	}
	a := start(t, options{env: env})
	const look = `find . ! -type d | sort | xargs -d '\n' sha256sum; find . -printf '%p %y %l %m %T@ %n\n' | sort`
	a.ok("th", `head -c 9000000 /dev/urandom > big && mkdir -p 'a b/c' && seq 10000 > 'a b/c/n' && ln -s /nowhere dangling && chmod 500 'a b/c' &&
		truncate -s 200M sparse && echo x | dd of=sparse bs=1M seek=150 conv=notrunc && ln 'a b/c/n' name2 && touch -d 2001-02-03 big && mkfifo pipe && rm pipe && mkdir empty`)
	if res := a.do("PUT", "/api/threads/th/files", map[string]string{"path": "/mnt/user-data/uploads/up.txt", "content": "by the API"}); res.status != http.StatusCreated {
		t.Fatalf("%d %s", res.status, res.body)
	}
	want := a.ok("th", look)
	a.kill()

	b := start(t, options{env: env})
	if text := string(b.do("GET", "/api/threads/th/files?path=/mnt/user-data/uploads/up.txt", nil).body); !strings.Contains(text, "by the API") {
		t.Errorf("the first call about a thread of another server: %s", text)
	}
	if got := b.ok("th", look); got != want {
		t.Errorf("there it was\n%s\nhere it is\n%s", want, got)
	}
	b.ok("th", "echo more >> 'a b/c/n' && echo by b > b")

	a.boot()
	if got := a.ok("th", "tail -n1 'a b/c/n'; cat b; echo by a > a"); got != "more\nby b\n" {
		t.Errorf("on the first server: %s", got)
	}
	if res := b.do("POST", "/api/threads/th/exec", map[string]any{"command": "echo late > late"}); res.code() != "conflict" {
		t.Errorf("an exec on an old disk: %d %s", res.status, res.body)
	}
	if got := b.ok("th", "cat a; ls"); !strings.HasPrefix(got, "by a\n") || strings.Contains(got, "late") {
		t.Errorf("on the second server: %s", got)
	}
	if res := a.do("DELETE", "/api/threads/th", nil); res.status != http.StatusNoContent {
		t.Errorf("%d %s", res.status, res.body)
	}
	b.stop()
	b.boot()
	if res := b.do("DELETE", "/api/threads/th/sandbox", nil); res.status != http.StatusNoContent && res.status != http.StatusNotFound {
		t.Errorf("%d %s", res.status, res.body)
	}
	if res := b.do("GET", "/api/threads/th/files?path=/mnt/user-data/workspace/b", nil); res.status != http.StatusNotFound {
		t.Errorf("deleted elsewhere: %d %s", res.status, res.body)
	}
}
