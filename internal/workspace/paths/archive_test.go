package paths

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// tree is what a host folder holds: names with their modes and contents.
func tree(t *testing.T, host string) string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(host, func(p string, d os.DirEntry, err error) error {
		if err != nil || p == host {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := strings.TrimPrefix(p, host+"/") + " " + info.Mode().String()
		if info.Mode().IsRegular() {
			text, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d %.20q", len(text), text)
		}
		out = append(out, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// TestArchiveRoundTrip: what a folder holds comes back as it was in another thread, in each format, but for links and the like.
func TestArchiveRoundTrip(t *testing.T) {
	f, host := thread(t)
	work := filepath.Join(host, "workspace")
	mkdirs(t, filepath.Join(work, "a", "empty"))
	mkdirs(t, filepath.Join(work, ".skerry"))
	mkdirs(t, filepath.Join(work, "sub"))
	put(t, filepath.Join(work, "a", "log:12 30.txt"), "one\n")
	put(t, filepath.Join(work, "a", strings.Repeat("ü", 120)), "long name")
	put(t, filepath.Join(work, "large"), strings.Repeat("0123456789abcdef", (wholeBytes+4096)/16))
	put(t, filepath.Join(work, "run.sh"), "#!/bin/sh\n")
	put(t, filepath.Join(work, ".skerry", "spilled"), "the server's")
	if err := os.Chmod(filepath.Join(work, "run.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	wanted := strings.ReplaceAll(tree(t, work), ".skerry drwxr-xr-x\n.skerry/spilled -rw-r--r-- 12 \"the server's\"\n", "")
	outside := filepath.Join(filepath.Dir(host), "outside")
	put(t, outside, "not yours")
	link(t, outside, filepath.Join(work, "a", "out"))
	link(t, "run.sh", filepath.Join(work, "in"))
	link(t, "a", filepath.Join(work, "folder"))
	if err := syscall.Mkfifo(filepath.Join(work, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := f.Survey(t.Context(), ws)
	if err != nil || p.Files != 4 || p.LeftOut != 4 || p.Bytes != 4+9+wholeBytes+4096+10 {
		t.Errorf("%+v %v", p, err)
	}
	for _, format := range []Format{TarGzip, Tar, Zip} {
		var out bytes.Buffer
		if err := f.Pack(t.Context(), ws, format, &out); err != nil {
			t.Fatal(format, err)
		}
		if bytes.Contains(out.Bytes(), []byte("not yours")) || bytes.Contains(out.Bytes(), []byte("the server's")) {
			t.Errorf("%s: what lies outside is in it", format)
		}
		other, to := thread(t, func(o *Options) { o.DiskBytes = 16 << 20 })
		u, err := other.Unpack(t.Context(), ws+"/", bytes.NewReader(out.Bytes()))
		if err != nil || u.Path != ws || u.Files != p.Files || u.Bytes != p.Bytes {
			t.Fatalf("%s: %+v %v", format, u, err)
		}
		if got := tree(t, filepath.Join(to, "workspace")); got != wanted {
			t.Errorf("%s:\n%s\nwant\n%s", format, got, wanted)
		}
		// Once more: files are replaced, others stay.
		put(t, filepath.Join(to, "workspace", "mine"), "stays")
		put(t, filepath.Join(to, "workspace", "run.sh"), "changed")
		if _, err := other.Unpack(t.Context(), ws, bytes.NewReader(out.Bytes())); err != nil {
			t.Fatal(format, err)
		}
		if got := tree(t, filepath.Join(to, "workspace")); got != strings.Replace(wanted, "run.sh", "mine -rw-r--r-- 5 \"stays\"\nrun.sh", 1) {
			t.Errorf("%s again:\n%s", format, got)
		}
	}
}

// TestUnpackAll: an archive of all of a thread's files goes back into all of them, and nowhere beside.
func TestUnpackAll(t *testing.T) {
	f, host := thread(t)
	put(t, filepath.Join(host, "workspace", "a"), "1")
	put(t, filepath.Join(host, "outputs", "b"), "2")
	var out bytes.Buffer
	if err := f.Pack(t.Context(), sandbox.UserDataDir, TarGzip, &out); err != nil {
		t.Fatal(err)
	}
	var changed []string
	other, to := thread(t, func(o *Options) { o.Changing = func(p string) { changed = append(changed, p) } })
	if u, err := other.Unpack(t.Context(), sandbox.UserDataDir, bytes.NewReader(out.Bytes())); err != nil || u.Files != 2 {
		t.Fatalf("%+v %v", u, err)
	}
	if err := os.Remove(filepath.Join(to, StageDir)); err != nil {
		t.Errorf("what was staged is left: %v", err)
	}
	if tree(t, to) != tree(t, host) || slices.Contains(changed, sandbox.UserDataDir) || len(changed) != 3 {
		t.Errorf("%s\nchanged %v", tree(t, to), changed)
	}
	for _, top := range []string{sandbox.UserDataDir, "/mnt/skills", "/mnt/skills/new", "/mnt/user-data/other/x"} {
		_, err := other.Unpack(t.Context(), top, tarOf(file("new.txt", "x")))
		wantKind(t, err, sandbox.Forbidden)
	}
	if _, err := other.Unpack(t.Context(), ws+"/made/for/it", tarOf(file("./d/new.txt", "x"))); err != nil {
		t.Error(err)
	}
	if got := tree(t, filepath.Join(to, "workspace", "made")); !strings.Contains(got, "for/it/d/new.txt") {
		t.Error(got)
	}
}

type tarEntry struct {
	h    tar.Header
	body string
}

func file(name, body string) tarEntry {
	return tarEntry{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}, body}
}

func tarOf(entries ...tarEntry) *bytes.Buffer {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if e.h.Typeflag == tar.TypeReg {
			e.h.Size = int64(len(e.body))
		}
		if err := w.WriteHeader(&e.h); err != nil {
			panic(err)
		}
		if _, err := io.WriteString(w, e.body); err != nil {
			panic(err)
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return &b
}

func zipOf(change func(*zip.FileHeader), entries ...tarEntry) *bytes.Buffer {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.h.Name, Method: zip.Deflate}
		if change != nil {
			change(h)
		}
		out, err := w.CreateHeader(h)
		if err == nil {
			_, err = io.WriteString(out, e.body)
		}
		if err != nil {
			panic(err)
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return &b
}

func gzipped(r io.Reader) *bytes.Buffer {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.Copy(w, r); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return &b
}

func special(typ byte, name, to string) tarEntry {
	return tarEntry{tar.Header{Name: name, Linkname: to, Typeflag: typ, Mode: 0o644}, ""}
}

// TestHostileArchives: what is refused leaves nothing behind, also of what came before it in the archive.
func TestHostileArchives(t *testing.T) {
	t.Parallel()
	good := file("good.txt", "good")
	setuid := file("suid", "x")
	setuid.h.Mode = 0o4755
	cut := gzipped(tarOf(good, file("x", strings.Repeat("x", 5000)))).Bytes()
	folder := tarOf(tarEntry{tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o755}, ""}).Bytes()
	many := bytes.Repeat(folder[:512], MaxArchiveEntries+1)
	cases := map[string]struct {
		archive io.Reader
		kind    sandbox.Kind
		says    string
	}{
		"parent":            {tarOf(good, file("../evil", "x")), sandbox.Invalid, `".."`},
		"parent inside":     {tarOf(good, file("a/../../evil", "x")), sandbox.Invalid, `".."`},
		"absolute":          {tarOf(good, file("/etc/evil", "x")), sandbox.Invalid, "absolute"},
		"empty part":        {tarOf(good, file("a//b", "x")), sandbox.Invalid, "empty part"},
		"name not text":     {tarOf(good, file("a\xff", "x")), sandbox.Invalid, "UTF-8"},
		"long name":         {tarOf(good, file(strings.Repeat("n", 256), "x")), sandbox.Invalid, "255"},
		"deep":              {tarOf(good, file(strings.Repeat("d/", maxDepth)+"x", "x")), sandbox.Invalid, "elements"},
		"symlink":           {tarOf(good, special(tar.TypeSymlink, "l", "/etc/passwd")), sandbox.Invalid, "link"},
		"hard link":         {tarOf(good, special(tar.TypeLink, "l", "good.txt")), sandbox.Invalid, "link"},
		"through a link":    {tarOf(good, special(tar.TypeSymlink, "d", "/etc"), file("d/evil", "x")), sandbox.Invalid, "link"},
		"fifo":              {tarOf(good, special(tar.TypeFifo, "p", "")), sandbox.Invalid, "regular"},
		"device":            {tarOf(good, special(tar.TypeChar, "null", "")), sandbox.Invalid, "regular"},
		"setuid":            {tarOf(good, setuid), sandbox.Invalid, "setuid"},
		"twice":             {tarOf(good, file("x", "1"), file("x", "2")), sandbox.Invalid, "twice"},
		"twice by dots":     {tarOf(good, file("x", "1"), file("./x", "2")), sandbox.Invalid, "twice"},
		"file and folder":   {tarOf(good, file("x", "1"), file("x/y", "2")), sandbox.Invalid, "file in the archive"},
		"folder and file":   {tarOf(good, file("x/y", "1"), file("x", "2")), sandbox.Invalid, "twice"},
		"over the quota":    {tarOf(good, file("big", strings.Repeat("x", 2<<20))), sandbox.QuotaExceeded, "bytes"},
		"bomb":              {gzipped(tarOf(good, file("big", strings.Repeat("\x00", 64<<20)))), sandbox.QuotaExceeded, "room"},
		"zip bomb":          {zipOf(nil, good, file("big", strings.Repeat("\x00", 64<<20))), sandbox.QuotaExceeded, "room"},
		"too many":          {gzipped(bytes.NewReader(many)), sandbox.Invalid, "entries"},
		"zip parent":        {zipOf(nil, good, file("../evil", "x")), sandbox.Invalid, `".."`},
		"zip absolute":      {zipOf(nil, good, file("/evil", "x")), sandbox.Invalid, "absolute"},
		"zip link":          {zipOf(func(h *zip.FileHeader) { h.SetMode(os.ModeSymlink | 0o777) }, file("l", "/etc/passwd")), sandbox.Invalid, "link"},
		"zip device":        {zipOf(func(h *zip.FileHeader) { h.SetMode(os.ModeDevice | 0o666) }, file("d", "")), sandbox.Invalid, "regular"},
		"zip encrypted":     {zipOf(func(h *zip.FileHeader) { h.Flags |= 1 }, good), sandbox.Invalid, "encrypted"},
		"zip folder's mode": {zipOf(func(h *zip.FileHeader) { h.SetMode(os.ModeDir | 0o755) }, good), sandbox.Invalid, "folder by its name"},
		"zip checksum":      {bytes.NewReader(flip(zipOf(nil, good).Bytes())), sandbox.Invalid, "read as a whole"},
		"zip of many":       {bytes.NewReader(fakeDirectory(maxArchiveNames / 40)), sandbox.Invalid, "entries"},
		"cut":               {bytes.NewReader(cut[:len(cut)-20]), sandbox.Invalid, "read as a whole"},
		"nothing":           {strings.NewReader(""), sandbox.Invalid, "empty"},
		"no entries":        {tarOf(), sandbox.Invalid, "nothing in it"},
		"text":              {strings.NewReader(strings.Repeat("no archive\n", 100)), sandbox.Invalid, "tar.gz or zip"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, host := thread(t, func(o *Options) { o.DiskBytes, o.Spool = 1<<20, t.TempDir() })
			switch name {
			case "over the quota": // its archive itself is too long
			case "zip of many":
				f.disk.most = 32 << 20
			default:
				f.disk.most = 8 << 20
			}
			put(t, filepath.Join(host, "workspace", "there"), "stays")
			before := tree(t, host)
			_, err := f.Unpack(t.Context(), ws, c.archive)
			wantKind(t, err, c.kind)
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), host) {
				t.Errorf("%v: it is to say %q", err, c.says)
			}
			if got := tree(t, host); got != before {
				t.Errorf("it left\n%s", got)
			}
			if left, err := os.ReadDir(f.spool.dir); err != nil || len(left) > 0 {
				t.Errorf("the archive is still there: %v %v", left, err)
			}
		})
	}
}

// flip damages the content of the first file of a ZIP archive.
func flip(data []byte) []byte {
	n := 30 + int(binary.LittleEndian.Uint16(data[26:])) + int(binary.LittleEndian.Uint16(data[28:]))
	data[n+3] ^= 0xff
	return data
}

// fakeDirectory is a ZIP archive with one file and a directory that names it n times.
func fakeDirectory(n int) []byte {
	data := zipOf(nil, file("x", "x")).Bytes()
	end := bytes.LastIndex(data, []byte("PK\x05\x06"))
	begin := bytes.Index(data, []byte("PK\x01\x02"))
	entry, tail := data[begin:end], slices.Clone(data[end:])
	binary.LittleEndian.PutUint32(tail[12:], uint32(n*len(entry)))
	binary.LittleEndian.PutUint16(tail[8:], uint16(n))
	binary.LittleEndian.PutUint16(tail[10:], uint16(n))
	return append(append(slices.Clone(data[:begin]), bytes.Repeat(entry, n)...), tail...)
}

// TestUnpackOverLinks: what a sandbox put into the folder is neither followed nor replaced.
func TestUnpackOverLinks(t *testing.T) {
	f, host := thread(t)
	outside := filepath.Join(filepath.Dir(host), "outside")
	mkdirs(t, outside)
	put(t, filepath.Join(outside, "x"), "not yours")
	work := filepath.Join(host, "workspace")
	mkdirs(t, filepath.Join(work, "real"))
	link(t, outside, filepath.Join(work, "out"))
	link(t, "real", filepath.Join(work, "in"))
	link(t, filepath.Join(outside, "x"), filepath.Join(work, "x"))
	before := tree(t, filepath.Dir(host))
	for _, e := range []tarEntry{file("out/x", "evil"), file("in/x", "evil"), file("x", "evil"), {tar.Header{Name: "in/", Typeflag: tar.TypeDir, Mode: 0o755}, ""}} {
		_, err := f.Unpack(t.Context(), ws, tarOf(file("good", "good"), e))
		if k := sandbox.KindOf(err); k != sandbox.Conflict && k != sandbox.Invalid {
			t.Errorf("%s: %v", e.h.Name, err)
		}
	}
	if got := tree(t, filepath.Dir(host)); got != before {
		t.Errorf("it changed\n%s", got)
	}
	if _, err := f.Unpack(t.Context(), ws+"/in", tarOf(file("x", "good"))); err != nil { // the caller names it, and it leads inside
		t.Error(err)
	}
	_, err := f.Unpack(t.Context(), ws+"/out", tarOf(file("x", "evil")))
	wantKind(t, err, sandbox.Forbidden)
}

// TestPackBounds: a folder that holds more than an archive may is refused before anything is written.
func TestPackBounds(t *testing.T) {
	f, host := thread(t)
	holes, err := os.Create(filepath.Join(host, "workspace", "holes"))
	if err == nil {
		err = errors.Join(holes.Truncate(MaxArchivedBytes+1), holes.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Survey(t.Context(), ws)
	wantKind(t, err, sandbox.QuotaExceeded)
	_, err = f.Survey(t.Context(), ws+"/holes")
	wantKind(t, err, sandbox.Invalid)
	_, err = f.Survey(t.Context(), ws+"/none")
	wantKind(t, err, sandbox.NotFound)
	wantKind(t, f.Pack(t.Context(), ws, "rar", io.Discard), sandbox.Invalid)
}
