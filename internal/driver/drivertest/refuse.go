package drivertest

import (
	"errors"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// refused: a Spec that breaks a rule is refused with its kind, before anything is made.
func (s *suite) refused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*sandbox.Spec)
		want   sandbox.Kind
	}{
		"UIDZero":        {func(spec *sandbox.Spec) { spec.UID = 0 }, sandbox.Invalid},
		"UIDNegative":    {func(spec *sandbox.Spec) { spec.UID = -1 }, sandbox.Invalid},
		"NoMemory":       {func(spec *sandbox.Spec) { spec.Limits.MemoryBytes = 0 }, sandbox.Invalid},
		"NoCPU":          {func(spec *sandbox.Spec) { spec.Limits.CPUMillis = 0 }, sandbox.Invalid},
		"NoPIDs":         {func(spec *sandbox.Spec) { spec.Limits.PIDs = 0 }, sandbox.Invalid},
		"NegativePIDs":   {func(spec *sandbox.Spec) { spec.Limits.PIDs = -1 }, sandbox.Invalid},
		"NoOpenFiles":    {func(spec *sandbox.Spec) { spec.Limits.OpenFiles = 0 }, sandbox.Invalid},
		"NoFileBytes":    {func(spec *sandbox.Spec) { spec.Limits.FileBytes = 0 }, sandbox.Invalid},
		"NoTmpBytes":     {func(spec *sandbox.Spec) { spec.Limits.TmpBytes = 0 }, sandbox.Invalid},
		"NoDiskBytes":    {func(spec *sandbox.Spec) { spec.Limits.DiskBytes = 0 }, sandbox.Invalid},
		"NoDaemon":       {func(spec *sandbox.Spec) { spec.Daemon = "" }, sandbox.Invalid},
		"BadID":          {func(spec *sandbox.Spec) { spec.ID = "../../etc" }, sandbox.Invalid},
		"BadHostname":    {func(spec *sandbox.Spec) { spec.Hostname = "a b" }, sandbox.Invalid},
		"MountAtRoot":    {mountAt("/"), sandbox.Invalid},
		"MountAtEtc":     {mountAt("/etc"), sandbox.Invalid},
		"MountAtProc":    {mountAt("/proc/sys"), sandbox.Invalid},
		"MountAtDaemon":  {mountAt(sandbox.DaemonPath), sandbox.Invalid},
		"MountClimbs":    {mountAt("/mnt/../etc"), sandbox.Invalid},
		"MountRelative":  {mountAt("mnt/x"), sandbox.Invalid},
		"UnknownRuntime": {func(spec *sandbox.Spec) { spec.Runtime = "nosuch" }, sandbox.NotSupported},
		"NoRuntime":      {func(spec *sandbox.Spec) { spec.Runtime = "" }, sandbox.NotSupported},
		"UnknownImage":   {func(spec *sandbox.Spec) { spec.Image = s.h.UnknownImage }, sandbox.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			r := s.rig(t)
			right := r.spec.ID
			c.change(&r.spec)
			_, err := s.d.Create(callCtx(t), r.spec)
			refused(t, err, c.want)
			r.spec.ID = right
			if _, err := s.d.Inspect(callCtx(t), right); !errors.Is(err, sandbox.NotFound) {
				t.Errorf("Inspect: %v, want not_found", err)
			}
		})
	}
	t.Run("ImageNow", func(t *testing.T) {
		teller, ok := s.d.(driver.ImageTeller)
		if !ok {
			t.Skip("the driver cannot tell what an image is now")
		}
		image := s.rig(t).spec.Image
		first, err := teller.ImageNow(callCtx(t), image)
		again, e := teller.ImageNow(callCtx(t), image)
		if err != nil || e != nil || first == "" || first != again {
			t.Errorf("an image is not told apart: %q, %v; %q, %v", first, err, again, e)
		}
		_, err = teller.ImageNow(callCtx(t), s.h.UnknownImage)
		refused(t, err, sandbox.NotFound)
	})
	t.Run("NoHostRootfs", func(t *testing.T) {
		if s.caps.HostRootfs {
			t.Skip("capability HostRootfs: the driver takes a Spec without an image")
		}
		r := s.rig(t, func(spec *sandbox.Spec) { spec.Image = "" })
		_, err := s.d.Create(callCtx(t), r.spec)
		refused(t, err, sandbox.NotSupported)
	})
	for _, id := range []sandbox.ID{"", "..", "skerry-xyz", "skerry-0123456789abcdef/..", "--help"} {
		if _, err := s.d.Inspect(callCtx(t), id); !errors.Is(err, sandbox.Invalid) && !errors.Is(err, sandbox.NotFound) {
			t.Errorf("Inspect(%q): %v", id, err)
		}
	}
}

func mountAt(target string) func(*sandbox.Spec) {
	return func(spec *sandbox.Spec) {
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: "/usr", Target: target, ReadOnly: true})
	}
}

func refused(t testing.TB, err error, want sandbox.Kind) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v (%s), want %s", err, sandbox.KindOf(err), want)
		return
	}
	checkDetail(t, err)
}

// checkDetail asserts that what a caller sees tells nothing of the host.
func checkDetail(t testing.TB, err error) {
	t.Helper()
	var e *sandbox.Error
	if !errors.As(err, &e) {
		t.Errorf("error without a kind: %v", err)
		return
	}
	for _, leak := range []string{"/var/", "/tmp/", "/no/such", "runc", "docker", "daemon.json", "bundle"} {
		if strings.Contains(strings.ReplaceAll(e.Detail, "runsc", ""), leak) {
			t.Errorf("the detail tells %q of the host: %s", leak, e.Detail)
		}
	}
}
