package drivertest

import (
	"testing"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/drivertest/probewire"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// volumes asserts the contract of driver.Volumes, as a thread goes through it.
func (s *suite) volumes(t *testing.T) {
	d, ok := s.d.(driver.Volumes)
	need(t, ok, "Volumes")
	user := newID().hex()
	on := func(thread string, change ...func(*sandbox.Volume)) func(*sandbox.Spec) {
		v := &sandbox.Volume{Tenant: "acme", User: user, Thread: thread}
		for _, c := range change {
			c(v)
		}
		return func(spec *sandbox.Spec) { spec.Volume = v }
	}
	ahead := func(v *sandbox.Volume) { v.Ahead = true }
	bare := func(v *sandbox.Volume) { v.Ahead, v.Bare = true, true }

	// The first sandbox has what the server has, and leaves more.
	first := s.far(t, on("one"))
	same(t, "what the first has", first.there(t, remoteWork+"/before.txt"), "before")
	first.write(t, remoteWork+"/made.txt", "inside")
	first.inside(t, probewire.Request{Op: probewire.OpMkdir, Path: remoteWork + "/folder"})
	must(t, s.d.Remove(callCtx(t), first.spec.ID))
	uid := func(spec *sandbox.Spec) { spec.UID = first.spec.UID }

	// The next one has that, whatever the server has by now.
	next := s.rig(t, on("one", ahead), uid)
	next.put(t, "workspace/before.txt", "older")
	next.create(t)
	second := &far{rig: next, d: d}
	same(t, "what was there before", second.there(t, remoteWork+"/before.txt"), "before")
	same(t, "what the first one made", second.there(t, remoteWork+"/made.txt"), "inside")
	same(t, "what the server has meanwhile", next.here(t, "workspace/before.txt"), "older")

	// Another thread of the user sees nothing of it.
	other := s.far(t, on("two"), func(spec *sandbox.Spec) { spec.UID = first.spec.UID })
	same(t, "what another thread sees", other.there(t, remoteWork+"/made.txt"), "")
	same(t, "what another thread has", other.there(t, remoteWork+"/before.txt"), "before")
	must(t, s.d.Remove(callCtx(t), next.spec.ID))

	// Without a program its files can be pulled.
	files := s.rig(t, on("one", bare), uid)
	files.spec.Mounts = files.spec.Mounts[:1]
	files.create(t)
	if changed, err := d.Pull(callCtx(t), files.spec.ID); err != nil || !changed {
		t.Errorf("Pull without a program: %v, %v", changed, err)
	}
	same(t, "pulled", files.here(t, "workspace/made.txt"), "inside")
	same(t, "pulled too", files.here(t, "workspace/before.txt"), "before")
	must(t, s.d.Remove(callCtx(t), files.spec.ID))

	// Removed it is gone, and the other thread's is not.
	gone := s.rig(t, on("one", bare), uid)
	gone.spec.Mounts = gone.spec.Mounts[:1]
	for range 2 {
		must(t, d.RemoveFolder(callCtx(t), gone.spec))
	}
	again := s.rig(t, on("one", ahead), uid)
	again.create(t)
	same(t, "after its removal", (&far{rig: again, d: d}).there(t, remoteWork+"/made.txt"), "")
	same(t, "the other thread's after that", other.there(t, remoteWork+"/before.txt"), "before")
	unknown := s.rig(t, on("none", bare), func(spec *sandbox.Spec) { spec.Volume.User = "nobody-" + user })
	must(t, d.RemoveFolder(callCtx(t), unknown.spec))
	for _, x := range []*rig{again, other.rig} {
		must(t, s.d.Remove(callCtx(t), x.spec.ID))
		x.spec.Volume.Ahead, x.spec.Volume.Bare, x.spec.Mounts = true, true, x.spec.Mounts[:1]
		x.spec.ID = sandbox.ID(newID())
		must(t, d.RemoveFolder(callCtx(t), x.spec))
	}
}
