package onserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// swapper exchanges two entries for ever. snatcher replaces whatever file appears in a folder by a link.
const (
	swapper = `import ctypes, sys
f = ctypes.CDLL(None).renameat2
a, b = sys.argv[1].encode(), sys.argv[2].encode()
while True: f(-100, a, -100, b, 2)
`
	snatcher = `import os, sys
os.chdir(sys.argv[1])
while True:
    for n in os.listdir('.'):
        try:
            if os.path.islink(n): os.unlink(n); continue
            os.symlink(sys.argv[2], '../spare'); os.rename('../spare', n)
        except OSError: pass
`
)

// What is swapped: entries a and b of a folder. HOST is the host's folder, which a link points at.
const (
	swapFolders = `mkdir -p a/tree; echo mine > a/secret; echo mine > a/tree/leaf; ln -s "$HOST" b`
	swapFiles   = `echo mine > a; ln -s "$HOST/secret" b`
)

// race is an attack on one kind of file call.
type race struct {
	name, does, expect string
	folder             string // in the workspace; the name when ""
	setup              string // shell, in the folder
	snatch             bool   // the snatcher goes about, not the swapper
	// round makes the calls once, n counts. path is the folder as the API knows it.
	round func(s *racing, n int) []answer
	// naive is the same without a guard, on the folder's path on the host; it tells whether that reached the host's file.
	naive func(s *racing, dir string, n int) bool
}

// racing is one race under way.
type racing struct {
	t      *testing.T
	b      *bed
	c      canary
	path   string // of the folder, virtual
	folder string // of the thread, on the host
	uid    int
}

const racer = "racer" // the thread

func (s *racing) files(method, call string, body any) answer {
	return s.b.do(s.t, eve, method, "/api/threads/"+racer+"/files"+call, body)
}

// begin prepares the folder and lets the sandbox's code race.
func (r race) begin(t *testing.T, b *bed) *racing {
	folder := r.folder
	if folder == "" {
		folder = r.name
	}
	s := &racing{t: t, b: b, c: b.canary(t), path: "/mnt/user-data/workspace/" + folder}
	if _, err := fmt.Sscan(b.ok(t, eve, racer, "id -u"), &s.uid); err != nil {
		t.Fatal(err)
	}
	s.folder = b.host(t, eve, racer)
	must(t, os.RemoveAll(filepath.Join(s.folder, "workspace", folder))) // what a control left there is root's
	b.ok(t, eve, racer, fmt.Sprintf("mkdir -p %[1]s && cd %[1]s && HOST=%[2]s && %[3]s\ncat > /tmp/swap.py <<'E'\n%[4]sE\ncat > /tmp/snatch.py <<'E'\n%[5]sE",
		s.path, s.c.dir, r.setup, swapper, snatcher))
	command := fmt.Sprintf("cd %s && exec python3 /tmp/swap.py a b", s.path)
	if r.snatch {
		command = fmt.Sprintf("exec python3 /tmp/snatch.py %s/new %s", s.path, s.c.secret())
	}
	_, stop := b.background(t, eve, racer, command)
	t.Cleanup(stop)
	return s
}

func (r race) attack(class string) attack {
	return attack{
		name: r.name, class: class, does: r.does, expect: r.expect,
		try: func(t *testing.T, b *bed) {
			s := r.begin(t, b)
			good, refused := 0, 0
			for n, end := 0, time.Now().Add(700*time.Millisecond); n < 15 || time.Now().Before(end); n++ {
				for _, a := range r.round(s, n) {
					if s.c.silent(t, b, a); a.status < 300 {
						good++
					} else {
						refused++
					}
				}
				if t.Failed() {
					break
				}
			}
			s.c.untouched(t)
			t.Logf("%d calls went well, %d were refused", good, refused)
		},
		control: func(t *testing.T, b *bed) {
			s := r.begin(t, b)
			dir, n := filepath.Join(s.folder, strings.TrimPrefix(s.path, "/mnt/user-data/")), 0
			reaches(t, func() bool { n++; return r.naive(s, dir, n) })
		},
	}
}

func races() []attack {
	var all []attack
	for _, kind := range []struct {
		class string
		races []race
	}{
		{"races: reading", readRaces}, {"races: writing", writeRaces}, {"races: moving, deleting, owning", moveRaces}, {"races: the server's own files", ownRaces},
	} {
		for _, r := range kind.races {
			all = append(all, r.attack(kind.class))
		}
	}
	return all
}

var readRaces = []race{
	{
		name: "race-read-folder", does: "a folder is swapped with a link to the host's while the server reads a file in it",
		expect: "the own file or a refusal, never the host's", setup: swapFolders,
		round: func(s *racing, _ int) []answer {
			q := "?path=" + s.path + "/a/secret"
			return []answer{s.files("GET", q, nil), s.files("GET", "/content"+q, nil), s.files("GET", "/stat"+q, nil)}
		},
		naive: func(s *racing, dir string, _ int) bool {
			file := filepath.Join(dir, "a/secret")
			return inside(s.folder, file) && s.holds(file)
		},
	},
	{
		name: "race-read-file", does: "a file is swapped with a link to the host's while the server downloads it",
		expect: "the own file or a refusal, never the host's", setup: swapFiles,
		round: func(s *racing, _ int) []answer {
			return []answer{
				s.files("POST", "/download", map[string]any{"paths": []string{s.path + "/a", s.path + "/b"}}),
				s.files("GET", "/content?path="+s.path+"/a", nil), s.files("GET", "/grep?pattern=CANARY&path="+s.path+"/a", nil),
			}
		},
		naive: func(s *racing, dir string, _ int) bool {
			file := filepath.Join(dir, "a")
			return inside(s.folder, file) && s.holds(file)
		},
	},
	{
		name: "race-walk", does: "a folder is swapped with a link to the host's while the server lists and searches it",
		expect: "names and lines of the own files only", setup: swapFolders,
		round: func(s *racing, _ int) []answer {
			return []answer{
				s.files("GET", "/list?depth=5&path="+s.path+"/a", nil), s.files("GET", "/glob?pattern=**&path="+s.path, nil),
				s.files("GET", "/grep?pattern=CANARY&path="+s.path, nil),
			}
		},
		naive: func(s *racing, dir string, _ int) bool {
			a := filepath.Join(dir, "a")
			if !inside(s.folder, a) {
				return false
			}
			list, err := os.ReadDir(a)
			return err == nil && strings.Contains(fmt.Sprint(list), "only-on-host")
		},
	},
}

// holds reports whether a file has the host's content.
func (s *racing) holds(file string) bool {
	raw, err := os.ReadFile(file)
	return err == nil && strings.Contains(string(raw), s.c.text)
}
