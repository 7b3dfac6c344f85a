package drivertest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/drivertest/probewire"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Paths of the rig inside.
const (
	remoteWork  = sandbox.WorkspaceDir
	remoteSkill = sandbox.SkillsDir + "/SKILL.md"
)

// remote asserts the contract of driver.Remote. It looks into the sandbox with Harness.Inside alone, so that what it sees
// there is not what it copied itself.
func (s *suite) remote(t *testing.T) {
	_, ok := s.d.(driver.Remote)
	need(t, ok, "Remote")
	if s.h.Inside == nil {
		t.Fatal("a driver.Remote needs Harness.Inside")
	}
	for _, c := range []struct {
		name string
		test func(*testing.T)
	}{
		{"Created", s.remoteCreated},
		{"Pull", s.remotePull},
		{"Push", s.remotePush},
		{"PushView", s.remotePushView},
		{"Sockets", s.remoteSockets},
		{"Tokens", s.remoteTokens},
		{"NextServer", s.remoteNextServer},
		{"OtherFolder", s.remoteOtherFolder},
		{"OtherOwner", s.remoteOtherOwner},
		{"Quota", s.remoteQuota},
		{"Gone", s.remoteGone},
		{"Cut", s.remoteCut},
		{"AtOnce", s.remoteAtOnce},
	} {
		t.Run(c.name, c.test)
	}
}

// far is a sandbox whose disk is elsewhere.
type far struct {
	*rig
	d driver.Remote
}

func (s *suite) far(t testing.TB, change ...func(*sandbox.Spec)) *far {
	t.Helper()
	r := s.rig(t, change...)
	r.put(t, "workspace/before.txt", "before")
	r.put(t, "workspace/deep/er/file", "deep")
	r.create(t)
	return &far{rig: r, d: s.d.(driver.Remote)}
}

// put writes a file of the thread at the server.
func (r *rig) put(t testing.TB, name, text string) {
	t.Helper()
	file := filepath.Join(r.thread, name)
	must(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must(t, os.WriteFile(file, []byte(text), 0o644))
	for dir := file; dir != r.thread; dir = filepath.Dir(dir) {
		must(t, os.Lchown(dir, r.spec.UID, r.spec.UID))
	}
}

// here is what the server has at a path of the thread; "": nothing.
func (r *rig) here(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.thread, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(text)
}

// inside does something in the sandbox that works.
func (f *far) inside(t testing.TB, req probewire.Request) probewire.Response {
	t.Helper()
	resp := f.s.h.Inside(t, f.spec.ID, req)
	if resp.Err != "" {
		t.Fatalf("%+v inside: %s", req, resp.Err)
	}
	return resp
}

func (f *far) write(t testing.TB, path, text string) {
	t.Helper()
	f.inside(t, probewire.Request{Op: probewire.OpWrite, Path: path, Data: text})
}

// there is what the sandbox has at a path; "": nothing.
func (f *far) there(t testing.TB, path string) string {
	t.Helper()
	resp := f.s.h.Inside(t, f.spec.ID, probewire.Request{Op: probewire.OpRead, Path: path})
	return resp.Text
}

func (f *far) pull(t testing.TB) bool {
	t.Helper()
	changed, err := f.d.Pull(callCtx(t), f.spec.ID)
	if err != nil {
		t.Fatalf("Pull: %v", err)
	}
	return changed
}

func (f *far) push(t testing.TB, paths ...string) {
	t.Helper()
	if err := f.d.Push(callCtx(t), f.spec.ID, paths...); err != nil {
		t.Fatalf("Push(%q): %v", paths, err)
	}
}

func (f *far) attachment(token int64) driver.Attachment {
	return driver.Attachment{ID: f.spec.ID, Token: token, Mounts: f.spec.Mounts}
}

func ownerOf(t testing.TB, path string) int {
	t.Helper()
	info, err := os.Lstat(path)
	must(t, err)
	return int(info.Sys().(*syscall.Stat_t).Uid)
}

func same(t testing.TB, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %q, want %q", what, got, want)
	}
}

// remoteCreated: a sandbox begins with copies of all mounts, and the first Pull finds nothing new.
func (s *suite) remoteCreated(t *testing.T) {
	f := s.far(t)
	same(t, "a file", f.there(t, remoteWork+"/before.txt"), "before")
	same(t, "a file in folders", f.there(t, remoteWork+"/deep/er/file"), "deep")
	same(t, "a skill", f.there(t, remoteSkill), "a skill\n")
	same(t, "a mount in a mount", f.there(t, sandbox.SkillsDir+"/public/NESTED.md"), "nested\n")
	if f.pull(t) {
		t.Error("the first Pull says that it copied something")
	}
	must(t, os.WriteFile(filepath.Join(f.thread, "workspace", "later"), []byte("x"), 0o644))
	same(t, "what the server wrote and did not push", f.there(t, remoteWork+"/later"), "")
}

// remotePull: made, changed, emptied, removed, and turned into something else; owners and modes are the thread's.
func (s *suite) remotePull(t *testing.T) {
	f := s.far(t)
	f.write(t, remoteWork+"/before.txt", "after")
	f.inside(t, probewire.Request{Op: probewire.OpMkdir, Path: remoteWork + "/new"})
	f.write(t, remoteWork+"/new/file", "new")
	f.write(t, sandbox.OutputsDir+"/out", "out")
	if !f.pull(t) {
		t.Error("Pull says that it copied nothing")
	}
	same(t, "a changed file", f.here(t, "workspace/before.txt"), "after")
	same(t, "a new one", f.here(t, "workspace/new/file"), "new")
	same(t, "one in outputs", f.here(t, "outputs/out"), "out")
	for _, name := range []string{"workspace", "workspace/new", "workspace/new/file", "workspace/before.txt"} {
		if uid := ownerOf(t, filepath.Join(f.thread, name)); uid != f.spec.UID {
			t.Errorf("%s belongs to %d at the server, want %d", name, uid, f.spec.UID)
		}
	}
	if f.pull(t) {
		t.Error("a second Pull says that it copied something")
	}
	f.inside(t, probewire.Request{Op: probewire.OpRemove, Path: remoteWork + "/new"})
	f.write(t, remoteWork+"/new", "a file now")
	f.inside(t, probewire.Request{Op: probewire.OpRemove, Path: remoteWork + "/before.txt"})
	f.inside(t, probewire.Request{Op: probewire.OpSymlink, Path: remoteWork + "/link", Data: "deep/er"})
	f.inside(t, probewire.Request{Op: probewire.OpSymlink, Path: remoteWork + "/astray", Data: "/etc/passwd"})
	f.pull(t)
	same(t, "a folder that became a file", f.here(t, "workspace/new"), "a file now")
	if _, err := os.Lstat(filepath.Join(f.thread, "workspace/before.txt")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a removed file is at the server: %v", err)
	}
	for name, want := range map[string]string{"link": "deep/er", "astray": "/etc/passwd"} {
		if to, err := os.Readlink(filepath.Join(f.thread, "workspace", name)); err != nil || to != want {
			t.Errorf("the link %s leads to %q, %v", name, to, err)
		}
	}
}

// remotePush: one file, a folder, what is gone; the folders above it come with it, and its neighbours are left alone.
func (s *suite) remotePush(t *testing.T) {
	f := s.far(t)
	f.write(t, remoteWork+"/theirs", "inside")
	f.put(t, "workspace/a/b/one", "1")
	f.put(t, "workspace/a/b/two", "2")
	f.push(t, remoteWork+"/a/b/one")
	same(t, "a pushed file", f.there(t, remoteWork+"/a/b/one"), "1")
	same(t, "its neighbour", f.there(t, remoteWork+"/a/b/two"), "")
	f.push(t, remoteWork+"/a")
	same(t, "a file of a pushed folder", f.there(t, remoteWork+"/a/b/two"), "2")
	f.write(t, remoteWork+"/a/more", "gone by the next push")
	must(t, os.RemoveAll(filepath.Join(f.thread, "workspace/a/b")))
	f.put(t, "workspace/before.txt", "changed")
	f.push(t, remoteWork+"/a", remoteWork+"/before.txt", remoteWork+"/never-was")
	same(t, "a removed file", f.there(t, remoteWork+"/a/b/one"), "")
	same(t, "a file that the server does not have in a pushed folder", f.there(t, remoteWork+"/a/more"), "")
	same(t, "a changed file", f.there(t, remoteWork+"/before.txt"), "changed")
	same(t, "a file that was not pushed", f.there(t, remoteWork+"/theirs"), "inside")
	resp := f.inside(t, probewire.Request{Op: probewire.OpOwner, Path: remoteWork + "/before.txt"})
	if uid := fmt.Sprint(f.spec.UID); !slices.Equal(resp.Lines, []string{uid, uid}) {
		t.Errorf("a pushed file belongs to %v inside, want %s", resp.Lines, uid)
	}
	f.pull(t)
	same(t, "after a Pull, a file of the sandbox", f.here(t, "workspace/theirs"), "inside")
	same(t, "after a Pull, a pushed file", f.here(t, "workspace/before.txt"), "changed")
	for _, path := range []string{"/etc/passwd", "/mnt", sandbox.UserDataDir + "/../../etc", "workspace", ""} {
		if err := f.d.Push(callCtx(t), f.spec.ID, path); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("Push(%q): %v, want invalid", path, err)
		}
	}
}

// remotePushView: what is read-only inside follows the server, by whole folders.
func (s *suite) remotePushView(t *testing.T) {
	f := s.far(t)
	group := filepath.Join(f.skills, "group")
	fill := func(text string) {
		fresh := f.skills + "/../fresh"
		must(t, os.MkdirAll(fresh+"/skill", 0o755))
		for i := range 8 {
			must(t, os.WriteFile(fmt.Sprintf("%s/skill/%d", fresh, i), []byte(text), 0o644))
		}
		must(t, os.RemoveAll(group))
		must(t, os.Rename(fresh, group))
	}
	fill("one")
	f.push(t, sandbox.SkillsDir)
	same(t, "a new skill", f.there(t, sandbox.SkillsDir+"/group/skill/7"), "one")
	fill("two")
	must(t, os.Remove(filepath.Join(f.skills, "SKILL.md")))
	f.push(t, sandbox.SkillsDir)
	same(t, "a changed one", f.there(t, sandbox.SkillsDir+"/group/skill/0"), "two")
	same(t, "a removed one", f.there(t, remoteSkill), "")
	same(t, "a mount in it", f.there(t, sandbox.SkillsDir+"/public/NESTED.md"), "nested\n")
	if s.caps.Isolated {
		for _, path := range []string{"/x", "/group/skill/0", "/public/x"} {
			if got := s.h.Inside(t, f.spec.ID, probewire.Request{Op: probewire.OpWrite, Path: sandbox.SkillsDir + path, Data: "x"}); got.Err == "" {
				t.Errorf("%s could be written inside", path)
			}
		}
	}
	f.pull(t)
	if _, err := os.Stat(filepath.Join(group, "skill/0")); err != nil {
		t.Errorf("Pull changed a read-only mount: %v", err)
	}
}

// dial says from inside a line to the server's socket, and returns the answer.
func (f *far) dial(t testing.TB) (string, bool) {
	t.Helper()
	resp := f.s.h.Inside(t, f.spec.ID, f.s.dialControl())
	return strings.TrimSpace(resp.Text), resp.Err == ""
}

// awaitDial waits until a socket leads to the server, or does not.
func (f *far) awaitDial(t testing.TB, want bool) {
	t.Helper()
	for end := time.Now().Add(answerTimeout); ; time.Sleep(20 * time.Millisecond) {
		text, ok := f.dial(t)
		if ok == want {
			if ok {
				same(t, "the server's answer", text, "ping")
			}
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the socket leads to the server: %v, want %v", ok, want)
		}
	}
}

// remoteSockets: they lead to the server as long as it is attached.
func (s *suite) remoteSockets(t *testing.T) {
	f := s.far(t)
	f.awaitDial(t, true)
	must(t, f.d.Detach(callCtx(t), f.spec.ID))
	must(t, f.d.Detach(callCtx(t), f.spec.ID))
	f.awaitDial(t, false)
	if _, err := f.d.Pull(callCtx(t), f.spec.ID); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("Pull after Detach: %v, want unavailable", err)
	}
	if err := f.d.Push(callCtx(t), f.spec.ID, sandbox.SkillsDir); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("Push after Detach: %v, want unavailable", err)
	}
	for range 2 {
		must(t, f.d.Attach(callCtx(t), f.attachment(0)))
	}
	f.awaitDial(t, true)
	f.pull(t)
	if got := f.inspect(t); got.State != sandbox.Running {
		t.Errorf("after Detach and Attach the sandbox is %+v", got)
	}
}

// remoteTokens: who has a lower one than another before is refused, and changes nothing.
func (s *suite) remoteTokens(t *testing.T) {
	f := s.far(t, func(spec *sandbox.Spec) { spec.Token = 5 })
	if err := f.d.Attach(callCtx(t), f.attachment(4)); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("a lower token than that of Create: %v, want conflict", err)
	}
	f.awaitDial(t, true)
	f.pull(t)
	a := f.attachment(6)
	a.Labels = map[string]string{"thread": "another"}
	must(t, f.d.Attach(callCtx(t), a))
	if err := f.d.Attach(callCtx(t), f.attachment(5)); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("a lower token than before: %v, want conflict", err)
	}
	for end := time.Now().Add(answerTimeout); f.inspect(t).Labels["thread"] != "another"; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the labels are %v", f.inspect(t).Labels)
		}
	}
	same(t, "another label", f.inspect(t).Labels[runLabel], s.run)
}

// remoteNextServer: a second process takes the sandbox with a higher token; the first one cannot reach it any more, and changes
// nothing at the server.
func (s *suite) remoteNextServer(t *testing.T) {
	f := s.far(t, func(spec *sandbox.Spec) { spec.Token = 1 })
	f.write(t, remoteWork+"/left", "behind")
	next := s.h.New(t)
	defer next.Close() //nolint:errcheck // a driver of the test
	second := &far{rig: f.rig, d: next.(driver.Remote)}
	if _, err := second.d.Pull(callCtx(t), f.spec.ID); err == nil {
		t.Error("a process that is not attached can pull")
	}
	must(t, second.d.Attach(callCtx(t), f.attachment(2)))
	same(t, "before a Pull, what was left", f.here(t, "workspace/left"), "")
	second.pull(t)
	same(t, "after it", f.here(t, "workspace/left"), "behind")
	f.write(t, remoteWork+"/more", "x")
	refused := func(err error) bool {
		return errors.Is(err, sandbox.Conflict) || errors.Is(err, sandbox.Unavailable)
	}
	if _, err := f.d.Pull(callCtx(t), f.spec.ID); !refused(err) {
		t.Errorf("Pull of the first: %v, want conflict or unavailable", err)
	}
	same(t, "what the first copied", f.here(t, "workspace/more"), "")
	if err := f.d.Push(callCtx(t), f.spec.ID, remoteWork+"/left"); !refused(err) {
		t.Errorf("Push of the first: %v, want conflict or unavailable", err)
	}
	if err := f.d.Attach(callCtx(t), f.attachment(1)); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("Attach of the first: %v, want conflict", err)
	}
	must(t, f.d.Detach(callCtx(t), f.spec.ID)) // is not the second one's
	f.awaitDial(t, true)
	second.pull(t)
}

// remoteOtherFolder: a sandbox that waited becomes a thread's, whose folder is at another place.
func (s *suite) remoteOtherFolder(t *testing.T) {
	f := s.far(t)
	moved := f.thread + "-moved"
	must(t, os.Rename(f.thread, moved))
	a := f.attachment(3)
	a.Mounts = slices.Clone(a.Mounts)
	a.Mounts[0].Source = moved
	must(t, f.d.Attach(callCtx(t), a))
	f.write(t, remoteWork+"/own", "mine")
	f.pull(t)
	if text, err := os.ReadFile(filepath.Join(moved, "workspace/own")); err != nil || string(text) != "mine" {
		t.Errorf("in the new folder: %q, %v", text, err)
	}
	if _, err := os.Lstat(f.thread); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old folder is there again: %v", err)
	}
}

// remoteOtherOwner: it becomes that of a thread which has files, of another owner: a Push of all makes it have those alone, and what
// a Pull copies is theirs.
func (s *suite) remoteOtherOwner(t *testing.T) {
	f := s.far(t)
	f.write(t, remoteWork+"/own", "waited")
	theirs, uid := f.thread+"-theirs", f.spec.UID+1
	for _, dir := range []string{"workspace", "uploads", "outputs"} {
		must(t, os.MkdirAll(filepath.Join(theirs, dir), 0o700))
		must(t, os.Lchown(filepath.Join(theirs, dir), uid, uid))
	}
	file := filepath.Join(theirs, "workspace/kept")
	must(t, os.WriteFile(file, []byte("kept"), 0o600))
	must(t, os.Lchown(file, uid, uid))
	a := f.attachment(3)
	a.Mounts, a.UID = slices.Clone(a.Mounts), uid
	a.Mounts[0].Source = theirs
	must(t, f.d.Attach(callCtx(t), a))
	f.push(t, sandbox.UserDataDir)
	same(t, "a file of the thread", f.there(t, remoteWork+"/kept"), "kept")
	for _, gone := range []string{"own", "before.txt", "deep/er/file"} {
		same(t, "what it had while it waited", f.there(t, remoteWork+"/"+gone), "")
	}
	f.write(t, remoteWork+"/kept", "changed")
	f.inside(t, probewire.Request{Op: probewire.OpMkdir, Path: remoteWork + "/new"})
	f.pull(t)
	for _, name := range []string{"workspace", "workspace/kept", "workspace/new"} {
		if got := ownerOf(t, filepath.Join(theirs, name)); got != uid {
			t.Errorf("%s belongs to %d at the server, want %d", name, got, uid)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "changed" {
		t.Errorf("after a Pull: %q, %v", text, err)
	}
	same(t, "the folder of before", f.here(t, "workspace/own"), "")
}

// remoteQuota: what is beyond the limit is not copied, and the next Pull copies what is left then.
func (s *suite) remoteQuota(t *testing.T) {
	f := s.far(t, func(spec *sandbox.Spec) { spec.Limits.DiskBytes = 1 << 20 })
	for i := range 20 {
		f.write(t, fmt.Sprintf("%s/large%d", remoteWork, i), strings.Repeat("x", 60<<10))
	}
	if _, err := f.d.Pull(callCtx(t), f.spec.ID); !errors.Is(err, sandbox.QuotaExceeded) {
		t.Errorf("Pull of too much: %v, want quota_exceeded", err)
	}
	same(t, "the server's copy", f.here(t, "workspace/before.txt"), "before")
	for i := range 20 {
		f.inside(t, probewire.Request{Op: probewire.OpRemove, Path: fmt.Sprintf("%s/large%d", remoteWork, i)})
	}
	f.write(t, remoteWork+"/small", "fits")
	f.pull(t)
	same(t, "what fits", f.here(t, "workspace/small"), "fits")
}

// remoteGone: a sandbox that ended, and an id that never was a sandbox.
func (s *suite) remoteGone(t *testing.T) {
	f := s.far(t)
	f.write(t, remoteWork+"/lost", "x")
	s.h.Kill(t, f.spec.ID)
	f.awaitState(t, sandbox.Lost, 10*time.Second)
	if err := f.d.Attach(callCtx(t), f.attachment(0)); err == nil {
		t.Error("Attach of a sandbox that ended works")
	}
	if changed, err := f.d.Pull(callCtx(t), f.spec.ID); err == nil && !changed {
		t.Error("Pull of a sandbox that ended says that nothing had changed")
	} else if err != nil {
		same(t, "the server's copy after a Pull that failed", f.here(t, "workspace/before.txt"), "before")
	}
	must(t, f.d.Detach(callCtx(t), f.spec.ID))
	never := sandbox.ID(newID())
	must(t, f.d.Detach(callCtx(t), never))
	for what, err := range map[string]error{
		"Attach": f.d.Attach(callCtx(t), driver.Attachment{ID: never, Mounts: f.spec.Mounts}),
		"Push":   f.d.Push(callCtx(t), never, sandbox.SkillsDir),
	} {
		if !errors.Is(err, sandbox.NotFound) && !errors.Is(err, sandbox.Unavailable) {
			t.Errorf("%s of a sandbox that never was: %v, want not_found or unavailable", what, err)
		}
	}
}

// remoteCut: while there is no way all calls say so, nothing is lost at either side, and then all goes on by itself.
func (s *suite) remoteCut(t *testing.T) {
	if s.h.Cut == nil {
		t.Skip("Harness.Cut: this harness cannot break connections")
	}
	f := s.far(t)
	f.write(t, remoteWork+"/kept", "inside")
	s.h.Cut(t, f.spec.ID, true)
	for what, err := range map[string]error{
		"Push": f.d.Push(callCtx(t), f.spec.ID, remoteWork),
		"Pull": func() error { _, err := f.d.Pull(callCtx(t), f.spec.ID); return err }(),
	} {
		if !errors.Is(err, sandbox.Unavailable) {
			t.Errorf("%s without a way: %v, want unavailable", what, err)
		}
	}
	same(t, "the server's copy", f.here(t, "workspace/before.txt"), "before")
	s.h.Cut(t, f.spec.ID, false)
	for end := time.Now().Add(answerTimeout); ; time.Sleep(50 * time.Millisecond) {
		if _, err := f.d.Pull(callCtx(t), f.spec.ID); err == nil {
			break
		} else if !errors.Is(err, sandbox.Unavailable) || time.Now().After(end) {
			t.Fatalf("Pull after a cut: %v", err)
		}
	}
	same(t, "what was written meanwhile", f.here(t, "workspace/kept"), "inside")
	f.awaitDial(t, true)
}

// remoteAtOnce: all calls side by side for one sandbox, while it writes.
func (s *suite) remoteAtOnce(t *testing.T) {
	f := s.far(t)
	var writers sync.WaitGroup
	writers.Go(func() {
		for i := range 10 {
			f.write(t, fmt.Sprintf("%s/mine-%d", remoteWork, i), strings.Repeat("x", 1<<10*i))
		}
	})
	atOnce(t, 12, func(i int) error {
		switch i % 4 {
		case 0:
			_, err := f.d.Pull(callCtx(t), f.spec.ID)
			return err
		case 1:
			return f.d.Push(callCtx(t), f.spec.ID, sandbox.SkillsDir)
		case 2:
			return f.d.Push(callCtx(t), f.spec.ID, sandbox.UploadsDir)
		}
		return f.d.Attach(callCtx(t), f.attachment(0))
	})
	writers.Wait()
	f.pull(t)
	for i := range 10 {
		if n := len(f.here(t, fmt.Sprintf("workspace/mine-%d", i))); n != 1<<10*i {
			t.Errorf("mine-%d has %d bytes at the server", i, n)
		}
	}
}
