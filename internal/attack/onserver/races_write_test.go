package onserver

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

var writeRaces = []race{
	{
		name: "race-write", does: "a folder is swapped with a link to the host's while the server writes and uploads into it",
		expect: "nothing appears on the host", setup: swapFolders,
		round: func(s *racing, n int) []answer {
			name := fmt.Sprintf("%s/a/planted%d", s.path, n%50)
			return []answer{
				s.files("PUT", "", map[string]any{"path": name, "content": "x"}), s.files("PUT", "/content?path="+name, []byte("y")),
				s.files("PUT", "", map[string]any{"path": s.path + "/a/secret", "content": "mine"}),
			}
		},
		naive: func(s *racing, dir string, _ int) bool {
			if inside(s.folder, filepath.Join(dir, "a/secret")) {
				_ = os.WriteFile(filepath.Join(dir, "a/planted"), []byte("x"), 0o600)
			}
			return exists(filepath.Join(s.c.dir, "planted"))
		},
	},
	{
		name: "race-append-edit", does: "a file is swapped with a link to the host's while the server appends to it and edits it",
		expect: "the host's file stays as it is", setup: swapFiles,
		round: func(s *racing, _ int) []answer {
			return []answer{
				s.files("PUT", "", map[string]any{"path": s.path + "/a", "content": "more", "append": true}),
				s.files("POST", "/edit", map[string]any{"path": s.path + "/a", "old": "more", "new": "", "replace_all": true}),
			}
		},
		naive: func(s *racing, dir string, _ int) bool {
			file := filepath.Join(dir, "a")
			if inside(s.folder, file) {
				if f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0); err == nil {
					_, _ = f.WriteString("more")
					_ = f.Close()
				}
			}
			info, err := os.Stat(s.c.secret())
			return err == nil && info.Size() > int64(len(s.c.text)+1)
		},
	},
	{
		name: "race-mkdir", does: "a folder is swapped with a link to the host's while the server makes folders in it, with their parents",
		expect: "no folder appears on the host", setup: swapFolders,
		round: func(s *racing, n int) []answer {
			return []answer{s.files("POST", "/mkdir", map[string]any{"path": fmt.Sprintf("%s/a/made%d/x/y", s.path, n%50)})}
		},
		naive: func(s *racing, dir string, _ int) bool {
			if inside(s.folder, filepath.Join(dir, "a")) {
				_ = os.MkdirAll(filepath.Join(dir, "a/made/x/y"), 0o750)
			}
			return exists(filepath.Join(s.c.dir, "made"))
		},
	},
}

var moveRaces = []race{
	{
		name: "race-move", does: "a folder is swapped with a link to the host's while the server moves files out of it and into it",
		expect: "nothing of the host is taken, nothing put there", setup: swapFolders,
		round: func(s *racing, n int) []answer {
			out := fmt.Sprintf("%s/stolen%d", s.path, n)
			as := []answer{
				s.files("POST", "/move", map[string]any{"from": s.path + "/a/secret", "to": out}),
				s.files("GET", "?path="+out, nil),
				s.files("POST", "/move", map[string]any{"from": out, "to": s.path + "/a/secret"}),
			}
			return append(as, s.files("DELETE", "?path="+out, nil), s.files("PUT", "", map[string]any{"path": s.path + "/a/secret", "content": "mine"}))
		},
		naive: func(s *racing, dir string, _ int) bool {
			file, out := filepath.Join(dir, "a/secret"), filepath.Join(dir, "stolen")
			if inside(s.folder, file) {
				_ = os.Rename(file, out)
			}
			if s.holds(out) {
				return true
			}
			_ = os.Rename(out, file)
			return !s.holds(s.c.secret()) // that way it went over the host's
		},
	},
	{
		name: "race-delete", does: "a folder is swapped with a link to the host's while the server deletes a tree in it",
		expect: "the host's tree stays", setup: swapFolders,
		round: func(s *racing, _ int) []answer {
			return []answer{
				s.files("DELETE", "?recursive=true&path="+s.path+"/a/tree", nil),
				s.files("PUT", "", map[string]any{"path": s.path + "/a/tree/leaf", "content": "mine"}),
			}
		},
		naive: func(s *racing, dir string, _ int) bool {
			tree := filepath.Join(dir, "a/tree")
			if inside(s.folder, tree) {
				_ = os.RemoveAll(tree)
			}
			_ = os.MkdirAll(filepath.Join(s.folder, "workspace/race-delete/a/tree"), 0o755) //nolint:gosec // the sandbox's own
			return !exists(filepath.Join(s.c.dir, "tree/leaf"))
		},
	},
	{
		name: "race-chown", does: "what the server has just made is replaced by a link to the host's file before it is given to the sandbox's uid",
		expect: "the host's file keeps its owner", setup: `mkdir new`, snatch: true,
		round: func(s *racing, n int) []answer {
			return []answer{
				s.files("PUT", "/content?path="+s.path+"/new/f", []byte("x")),
				s.files("POST", "/mkdir", map[string]any{"path": fmt.Sprintf("%s/new/d%d/x", s.path, n%20)}),
			}
		},
		naive: func(s *racing, dir string, _ int) bool {
			file := filepath.Join(dir, "new/f")
			if f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
				_, _ = f.Write(make([]byte, 1<<16))
				_ = f.Close()
				time.Sleep(200 * time.Microsecond) // a slow disk
				_ = os.Chown(file, s.uid, s.uid)
			}
			info, err := os.Stat(s.c.secret())
			return err == nil && int(info.Sys().(*syscall.Stat_t).Uid) == s.uid
		},
	},
}

// ownRaces are against files that the server writes by itself.
var ownRaces = []race{
	{
		name: "race-spill", does: "the folder that long output is kept in is swapped with a link to the host's",
		expect: "the output is kept in the thread or not at all", folder: ".skerry", setup: `mkdir a; ln -s "$HOST" b; ln -s a execs`,
		round: func(s *racing, n int) []answer {
			if n > 8 {
				return nil
			}
			call := func(route string, body any) answer {
				return s.b.do(s.t, eve, "POST", "/api/threads/"+racer+"/"+route, body)
			}
			return []answer{
				call("execute_code", map[string]any{"language": "bash", "code": "head -c 30000 /dev/zero | tr '\\0' x"}),
				call("exec", map[string]any{"command": "head -c 30000 /dev/zero | tr '\\0' x", "max_output_bytes": 1000, "env": map[string]string{"S": "a-secret-to-hide"}}),
			}
		},
		naive: naiveKeep("execs/id"),
	},
	{
		name: "race-results", does: "the folder that large results of tools are kept in is swapped with a link to the host's",
		expect: "the result is kept in the thread or not at all", folder: ".skerry", setup: `mkdir a; ln -s "$HOST" b; ln -s a results`,
		round: func(s *racing, _ int) []answer {
			return []answer{s.b.do(s.t, eve, "POST", "/api/threads/"+racer+"/tools/call", map[string]any{"tool": "far__big", "input": map[string]any{"bytes": 300_000}})}
		},
		naive: naiveKeep("results"),
	},
	{
		name: "race-changes", does: "a changed file is swapped with a link to the host's while the server hashes it",
		expect: "no hash of the host's file", setup: swapFiles,
		round: func(s *racing, n int) []answer {
			if n > 8 {
				return nil
			}
			return []answer{s.b.do(s.t, eve, "POST", "/api/threads/"+racer+"/exec", map[string]any{"command": "true", "report_files": true})}
		},
		naive: func(s *racing, dir string, _ int) bool {
			file := filepath.Join(dir, "a")
			info, err := os.Lstat(file)
			return err == nil && info.Mode().IsRegular() && s.holds(file)
		},
	},
}

// naiveKeep keeps a text below a folder of the server's own, after a look at where that leads.
func naiveKeep(sub string) func(*racing, string, int) bool {
	return func(s *racing, dir string, n int) bool {
		folder := filepath.Join(dir, sub)
		if inside(s.folder, filepath.Dir(folder)) && (filepath.Dir(folder) != dir || inside(s.folder, folder)) {
			_ = os.MkdirAll(folder, 0o750)
			_ = os.WriteFile(filepath.Join(folder, fmt.Sprint("planted", n%4)), []byte("x"), 0o600)
		}
		for i := range 4 {
			for _, at := range []string{"id", "."} {
				if exists(filepath.Join(s.c.dir, at, fmt.Sprint("planted", i))) {
					return true
				}
			}
		}
		return false
	}
}
