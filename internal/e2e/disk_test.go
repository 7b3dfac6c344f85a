package e2e

import (
	"bytes"
	"fmt"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestDiskQuota: no sandbox exceeds the limit of a thread or of a user, and the host keeps its space. A
// killed server loses neither files nor limits.
func TestDiskQuota(t *testing.T) {
	t.Parallel()
	need(t, have("mkfs.ext4") && have("mkfs.btrfs"), "mkfs.ext4 and mkfs.btrfs")
	for _, driver := range first("docker", "oci") {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			diskQuota(t, driver)
		})
	}
}

func diskQuota(t *testing.T, driver string) {
	s := start(t, options{driver: driver, disk: "24MiB", env: []string{"SKERRY_DISK_QUOTA=auto", "SKERRY_DISK_IMAGE_MIB=320", "SKERRY_USER_DISK_MIB=36"}})
	if ready := string(s.do("GET", "/readyz", nil).body); !strings.Contains(ready, "enforced by") || !strings.Contains(ready, "image of 320 MiB") {
		t.Fatalf("readyz: %s", ready)
	}
	before := blocks(t, s.data)

	s.full("a", "dd if=/dev/urandom of=big bs=1M count=64")
	if n := s.ok("a", "stat -c %s big"); len(n) < 9 { // more than 10 MB
		t.Errorf("of the file there are %s bytes", n)
	}
	s.put("a", 8<<20, "quota_exceeded")
	if got := s.upload("a", 8<<20); got != "quota_exceeded" {
		t.Errorf("upload: %q", got)
	}
	s.ok("b", "dd if=/dev/urandom of=mine bs=1M count=6 && sync mine") // the neighbour writes
	s.full("b", "dd if=/dev/urandom of=more bs=1M count=16; rm more; dd if=/dev/urandom of=more bs=1M count=16")
	s.put("b", 10<<20, "quota_exceeded") // the thread has room for it, its user has not
	s.full("b", "rm -f more mine; truncate -s 200M holes && dd if=/dev/urandom of=holes bs=1M count=64 seek=100 conv=notrunc")
	s.ok("b", "rm holes")

	s.kill()
	s.boot()
	if size := s.ok("a", "test $(stat -c %s big) -gt 16000000 && echo kept"); size != "kept\n" {
		t.Errorf("after a kill: %q", size)
	}
	s.full("a", "dd if=/dev/urandom of=other bs=1M count=24")
	if res := s.do("DELETE", "/api/threads/a", nil); res.status != http.StatusNoContent {
		t.Fatalf("delete: %d %s", res.status, res.body)
	}
	s.ok("b", "dd if=/dev/urandom of=mine bs=1M count=20 && sync mine") // what the other thread had is free

	const tiny = `import os
n = 0
try:
    while n < 300000:
        if n % 1000 == 0: os.mkdir(f'd{n//1000}')
        os.close(os.open(f'd{n//1000}/{n}', os.O_CREAT | os.O_WRONLY)); n += 1
    print('all')
except OSError as e:
    print(e.strerror)`
	s.ok("c", "dd if=/dev/urandom of=most bs=1M count=12 && sync most")
	r := s.run("c", "exec", map[string]any{"argv": []string{"python3", "-c", tiny}, "timeout_s": 120})
	if !full(r.Stdout) {
		t.Errorf("300,000 files in 24 MiB: %q %s", r.Stdout, r.Stderr)
	}
	if after := blocks(t, s.data); after > before {
		t.Errorf("the image took %d bytes of the host when it was made, now %d", before, after)
	}
}

func full(text string) bool {
	return strings.Contains(text, "No space left on device") || strings.Contains(text, "Disk quota exceeded")
}

// full runs a command that must end because there is no room.
func (s *server) full(thread, command string) {
	s.t.Helper()
	if r := s.exec(thread, command); r.ExitCode == nil || *r.ExitCode == 0 || !full(r.Stderr) {
		s.t.Errorf("%s: %s, %s", command, r.Status, r.Stderr)
	}
}

// put writes a file of so many bytes, and wants an answer of that code.
func (s *server) put(thread string, size int, code string) {
	s.t.Helper()
	req, err := http.NewRequest(http.MethodPut, s.url+"/api/threads/"+thread+"/files/content?path=/mnt/user-data/uploads/put", bytes.NewReader(make([]byte, size)))
	must(s.t, err)
	req.Header.Set("Content-Type", "application/octet-stream")
	if res := s.send(req); res.code() != code || res.status != http.StatusRequestEntityTooLarge {
		s.t.Errorf("put of %d bytes: %d %s", size, res.status, res.body)
	}
}

// upload sends a form with a file of so many bytes, and returns the error of that file.
func (s *server) upload(thread string, size int) string {
	s.t.Helper()
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	part, err := w.CreateFormFile("file", "large.bin")
	must(s.t, err)
	_, err = part.Write(make([]byte, size))
	must(s.t, err)
	must(s.t, w.Close())
	req, err := http.NewRequest(http.MethodPost, s.url+"/api/threads/"+thread+"/files/upload", &form)
	must(s.t, err)
	req.Header.Set("Content-Type", w.FormDataContentType())
	var list struct{ Items []struct{ Error string } }
	res := s.send(req)
	res.into(s.t, &list)
	if len(list.Items) != 1 {
		return fmt.Sprintf("%d %s", res.status, res.body)
	}
	return list.Items[0].Error
}

func (s *server) send(req *http.Request) answer {
	s.t.Helper()
	res, err := http.DefaultClient.Do(req.WithContext(s.t.Context()))
	must(s.t, err)
	defer res.Body.Close()
	var body bytes.Buffer
	_, err = body.ReadFrom(res.Body)
	must(s.t, err)
	return answer{res.StatusCode, res.Header, body.Bytes()}
}

// blocks is how much of the host's disk the image takes.
func blocks(t *testing.T, data string) int64 {
	t.Helper()
	info, err := os.Stat(filepath.Join(data, "disk.img"))
	must(t, err)
	return info.Sys().(*syscall.Stat_t).Blocks * 512
}
