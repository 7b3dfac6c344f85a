package onserver

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"
)

// soon is how long a file call may take on the slowest machine; hanging takes longer.
const soon = 30 * time.Second

// timely makes a file call of a thread that must be answered soon, and not as a failure of the server.
func (b *bed) timely(t *testing.T, thread, method, call string, body any) answer {
	t.Helper()
	began := time.Now()
	a := b.do(t, eve, method, "/api/threads/"+thread+call, body)
	if d := time.Since(began); d > soon || a.status >= 500 {
		t.Errorf("%s %s: %d after %v: %.200s", method, call, a.status, d, a.body)
	}
	return a
}

// stuck reports whether do is still at it after a second; release lets it end.
func stuck(do func(), release func()) bool {
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	select {
	case <-done:
		return false
	case <-time.After(time.Second):
		release()
		<-done
		return true
	}
}

func oddFiles() []attack {
	return []attack{
		{
			name: "file-that-waits", class: "odd files", does: "a FIFO, a socket or a folder is where the server expects a file, also while it is swapped with one",
			expect: "refused at once", try: fileThatWaits, control: func(t *testing.T, b *bed) {
				fifo := filepath.Join(t.TempDir(), "fifo")
				must(t, syscall.Mkfifo(fifo, 0o600))
				if !stuck(func() { _, _ = os.ReadFile(fifo) }, func() { must(t, os.WriteFile(fifo, nil, 0)) }) {
					t.Error("reading a FIFO does not wait")
				}
			},
		},
		{
			name: "file-without-end", class: "odd files", does: "a device without an end, or a file of 1 TiB with nothing in it, is read, searched, hashed and downloaded",
			expect: "refused by the kernel, else read in part", try: fileWithoutEnd, control: func(t *testing.T, _ *bed) {
				file := filepath.Join(t.TempDir(), "sparse")
				must(t, os.WriteFile(file, nil, 0o600))
				must(t, os.Truncate(file, 1<<40))
				f, err := os.Open(file)
				must(t, err)
				if !stuck(func() { _, _ = io.Copy(sha256.New(), f) }, func() { must(t, f.Close()) }) {
					t.Error("hashing 1 TiB takes less than a second")
				}
			},
		},
		{
			name: "folder-of-100000", class: "big trees", does: "100,000 files in a folder are listed, searched, counted, compared and deleted",
			expect: "10,000 of them, or a mark that it is not all", try: hugeFolder, control: func(t *testing.T, b *bed) {
				host := b.makeHuge(t, 20_000)
				defer os.RemoveAll(host)
				list, err := os.ReadDir(host)
				if err != nil || len(list) != 20_000 {
					t.Errorf("%d entries, %v", len(list), err)
				}
			},
		},
		{
			name: "path-beyond-max", class: "big trees", does: "folders are nested until their path is longer than a path may be, and listed, searched and deleted",
			expect: "listed in part, deleted whole", try: deepFolder, control: func(t *testing.T, b *bed) {
				b.ok(t, eve, "trees", fmt.Sprintf(makeDeep, 100))
				top := filepath.Join(b.host(t, eve, "trees"), "workspace/deep")
				err := filepath.WalkDir(top, func(_ string, _ fs.DirEntry, err error) error { return err })
				if !errors.Is(err, syscall.ENAMETOOLONG) {
					t.Errorf("a walk by path ends with %v", err)
				}
				must(t, os.RemoveAll(top))
			},
		},
		{
			name: "names-that-lie", class: "big trees", does: "names hold line ends, control characters, what is not UTF-8 and text that looks like a record",
			expect: "valid JSON, an audit log without the forged record", try: lyingNames, control: func(t *testing.T, b *bed) {
				b.ok(t, eve, "trees", makeNames)
				list, err := os.ReadDir(filepath.Join(b.host(t, eve, "trees"), "workspace/names"))
				must(t, err)
				var log bytes.Buffer
				for _, e := range list {
					fmt.Fprintf(&log, "created %s\n", e.Name())
				}
				if !strings.Contains(log.String(), "\n"+forged) {
					t.Errorf("no forged line in %q", log.String())
				}
			},
		},
	}
}

func fileThatWaits(t *testing.T, b *bed) {
	const dir = "/mnt/user-data/workspace/waits"
	b.ok(t, eve, "odd", fmt.Sprintf(`mkdir -p %[1]s/dir && cd %[1]s && mkfifo fifo && echo x > file && mkfifo other && python3 - <<'E'
import socket
s = socket.socket(socket.AF_UNIX); s.bind('sock')
E
cat > /tmp/swap.py <<'E'
%[2]sE`, dir, swapper))
	_, stop := b.background(t, eve, "odd", "cd "+dir+" && exec python3 /tmp/swap.py file other")
	defer stop()
	for _, name := range []string{"fifo", "sock", "dir", "file", "file", "file"} {
		p := dir + "/" + name
		q := "?path=" + p
		as := []answer{
			b.timely(t, "odd", "GET", "/files"+q, nil), b.timely(t, "odd", "GET", "/files/content"+q, nil),
			b.timely(t, "odd", "PUT", "/files", map[string]any{"path": p, "content": "x", "append": true}),
			b.timely(t, "odd", "POST", "/files/edit", map[string]any{"path": p, "old": "x", "new": "x2"}),
		}
		b.timely(t, "odd", "GET", "/files/grep?pattern=x&path="+p, nil)
		b.timely(t, "odd", "POST", "/files/download", map[string]any{"paths": []string{p}})
		began := time.Now()
		as = append(as, b.do(t, eve, "POST", "/api/skills/install", map[string]any{"thread_id": "odd", "path": p}))
		if d := time.Since(began); d > soon {
			t.Errorf("install of %s took %v", name, d)
		}
		for i, a := range as {
			if name != "file" && a.status < 400 {
				t.Errorf("%s: call %d: %d %.200s", name, i, a.status, a.body)
			}
		}
	}
	r := b.run(t, eve, "odd", "exec", map[string]any{"command": "touch " + dir + "/new", "report_files": true})
	if r.Status != "exited" {
		t.Errorf("an exec beside it: %+v", r)
	}
}

func fileWithoutEnd(t *testing.T, b *bed) {
	const dir = "/mnt/user-data/workspace/endless"
	out := b.ok(t, eve, "odd", "mkdir -p "+dir+"; cd "+dir+`; (truncate -s 1T big; mknod zero c 1 5) 2>&1; ls zero 2>/dev/null; true`)
	if !strings.Contains(out, "File size limit exceeded") || strings.HasSuffix(out, "zero\n") {
		t.Errorf("the sandbox made it: %q", out)
	}
	// As if the kernel had let it.
	host := filepath.Join(b.host(t, eve, "odd"), "workspace/endless")
	must(t, os.WriteFile(filepath.Join(host, "big"), []byte("begin"), 0o666)) //nolint:gosec // hostile
	must(t, os.Truncate(filepath.Join(host, "big"), 1<<40))
	must(t, syscall.Mknod(filepath.Join(host, "zero"), syscall.S_IFCHR|0o666, 1<<8|5))
	must(t, os.Chmod(filepath.Join(host, "big"), 0o666)) //nolint:gosec // hostile
	defer os.RemoveAll(host)
	for _, name := range []string{"big", "zero"} {
		p := dir + "/" + name
		for _, a := range []answer{
			b.timely(t, "odd", "GET", "/files?path="+p, nil), b.timely(t, "odd", "POST", "/files/edit", map[string]any{"path": p, "old": "begin", "new": "x"}),
			b.timely(t, "odd", "POST", "/files/download", map[string]any{"paths": []string{p}}), b.timely(t, "odd", "GET", "/files/grep?pattern=begin&path="+dir, nil),
			b.timely(t, "odd", "HEAD", "/files/content?path="+p, nil), b.timely(t, "odd", "GET", "", nil),
		} {
			if len(a.body) > 4<<20 {
				t.Errorf("%s: an answer of %d bytes", name, len(a.body))
			}
		}
	}
	req, err := http.NewRequest(http.MethodGet, b.url+"/api/threads/odd/files/content?path="+dir+"/big", nil)
	must(t, err)
	req.Header.Set("Range", "bytes=0-4")
	if a, err := b.send(eve, req); err != nil || a.status != http.StatusPartialContent || string(a.body) != "begin" {
		t.Errorf("a part of it: %d %.100q %v", a.status, a.body, err)
	}
	r := b.run(t, eve, "odd", "exec", map[string]any{"command": "echo x 1<> " + dir + "/big", "report_files": true, "timeout_s": 20})
	if r.Status != "exited" {
		t.Errorf("an exec that changes it: %+v", r)
	}
}

// makeHuge makes files in a folder of the workspace, as code in the sandbox could, if more slowly.
func (b *bed) makeHuge(t *testing.T, files int) (host string) {
	t.Helper()
	b.ok(t, eve, "trees", "mkdir -p /mnt/user-data/workspace/huge")
	host = filepath.Join(b.host(t, eve, "trees"), "workspace/huge")
	for i := range files {
		fd, err := syscall.Open(fmt.Sprintf("%s/f%d", host, i), syscall.O_CREAT|syscall.O_WRONLY|syscall.O_CLOEXEC, 0o644)
		must(t, err)
		must(t, syscall.Close(fd))
	}
	return host
}

func hugeFolder(t *testing.T, b *bed) {
	host := b.makeHuge(t, 100_000)
	defer os.RemoveAll(host)
	const dir = "/mnt/user-data/workspace/huge"
	for _, call := range []string{"/files/list?path=" + dir, "/files/glob?pattern=**&path=" + dir, "/files/list?depth=9&path=/mnt/user-data"} {
		a := b.timely(t, "trees", "GET", call, nil)
		var l struct {
			Items     []json.RawMessage
			Truncated bool
		}
		if err := json.Unmarshal(a.body, &l); err != nil || len(l.Items) > 10_000 || !l.Truncated {
			t.Errorf("%s: %d entries, truncated %v, %v", call, len(l.Items), l.Truncated, err)
		}
	}
	b.timely(t, "trees", "GET", "/files/grep?pattern=x&path="+dir, nil)
	b.timely(t, "trees", "GET", "", nil)
	b.timely(t, "trees", "PUT", "/files", map[string]any{"path": dir + "/one", "content": "more"})
	if r := b.run(t, eve, "trees", "exec", map[string]any{"command": "true", "report_files": true}); r.Status != "exited" || len(r.Files) > 0 {
		t.Errorf("an exec beside it: %+v", r)
	}
	if a := b.timely(t, "trees", "DELETE", "/files?recursive=true&path="+dir, nil); a.status != http.StatusNoContent {
		t.Errorf("delete: %d %s", a.status, a.body)
	}
}

// makeDeep makes a path of %d names of 100 bytes.
const makeDeep = `mkdir -p /mnt/user-data/workspace/deep && cd /mnt/user-data/workspace/deep && python3 -c 'import os
for i in range(%d):
    os.mkdir("d" * 100); os.chdir("d" * 100)
open("end", "w").close()'`

func deepFolder(t *testing.T, b *bed) {
	b.ok(t, eve, "trees", fmt.Sprintf(makeDeep, 1000))
	const dir = "/mnt/user-data/workspace/deep"
	for _, call := range []string{"/files/list?depth=64&path=" + dir, "/files/glob?pattern=**/end&path=" + dir, "/files/grep?pattern=x&path=" + dir, ""} {
		b.timely(t, "trees", "GET", call, nil)
	}
	if r := b.run(t, eve, "trees", "exec", map[string]any{"command": "true", "report_files": true}); r.Status != "exited" {
		t.Errorf("an exec beside it: %+v", r)
	}
	b.timely(t, "trees", "POST", "/files/move", map[string]any{"from": dir, "to": dir + "2"})
	if a := b.timely(t, "trees", "DELETE", "/files?recursive=true&path="+dir+"2", nil); a.status != http.StatusNoContent {
		t.Errorf("delete: %d %s", a.status, a.body)
	}
	if rest := b.ok(t, eve, "trees", "ls -A /mnt/user-data/workspace | grep deep || true"); rest != "" {
		t.Errorf("left over: %q", rest)
	}
}

// forged is what one of the names says.
const forged = `{"id":"0","action":"exec","outcome":"ok","user":"forged-by-eve"}`

const makeNames = `mkdir -p /mnt/user-data/workspace/names && cd /mnt/user-data/workspace/names && python3 -c 'import os
for n in [b"\xff\xfe\xc0\xae", b"a\n" + b"""` + forged + `""", b"x\r\nSet-Cookie: a=b", b"\x1b[2J\x07", b"\"quoted\"", b"<script>", "\u202etxt.exe".encode()]:
    open(n, "w").close()'`

func lyingNames(t *testing.T, b *bed) {
	const dir = "/mnt/user-data/workspace/names"
	r := b.run(t, eve, "trees", "exec", map[string]any{"command": makeNames, "report_files": true})
	if len(r.Files) != 7 {
		t.Errorf("%d files are reported: %+v", len(r.Files), r)
	}
	for _, call := range []string{"/files/list?path=" + dir, "/files/glob?pattern=*&path=" + dir, "/files/grep?pattern=x&path=" + dir} {
		if a := b.timely(t, "trees", "GET", call, nil); !json.Valid(a.body) || !utf8.Valid(a.body) {
			t.Errorf("%s: no valid JSON: %q", call, a.body)
		}
	}
	a := b.timely(t, "trees", "GET", "/files/content?path="+dir+"/x%0d%0aSet-Cookie:%20a=b", nil)
	if a.status != http.StatusOK || a.header.Get("Set-Cookie") != "" {
		t.Errorf("download of a name with line ends: %d %v", a.status, a.header)
	}
	if a := b.do(t, "", "GET", "/api/audit?user=forged-by-eve", nil); !bytes.Contains(a.body, []byte(`"items":[]`)) {
		t.Errorf("the forged record is in the log: %d %.300s", a.status, a.body)
	}
	b.ok(t, eve, "trees", "rm -rf "+dir)
}
