package ociconfig

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/go-runc"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
)

// Binding says how what is mounted below a source is treated.
type Binding int

const (
	// BindAlone leaves it out: the flags would not reach it.
	BindAlone Binding = iota
	// BindTree takes it along, with the same flags.
	BindTree
	// BindWhole takes it along, for a runtime whose own kernel has the flags for a mount as a whole (and
	// cannot leave anything out: its file server runs in a user namespace, where the mounts of a tree
	// hold together).
	BindWhole
)

// featuresTimeout bounds asking a runtime for its features: 20 ms as a rule.
const featuresTimeout = 10 * time.Second

// BindingOf finds out what a runtime can do. program is asked for its features; a runtime that does not tell
// gets BindAlone. The answer does not depend on how long the caller's ctx lasts: it is one to remember.
func BindingOf(ctx context.Context, runtime hardening.Runtime, program string) Binding {
	if runtime.OwnKernel {
		return BindWhole
	}
	if !kernelHasMountSetattr() {
		return BindAlone
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), featuresTimeout)
	defer cancel()
	cli := runc.Runc{Command: program, Log: os.DevNull, PdeathSignal: syscall.SIGKILL}
	features, err := cli.Features(ctx)
	if err == nil && slices.Contains(features.MountOptions, "rro") && slices.Contains(features.MountOptions, "rnosuid") {
		return BindTree
	}
	return BindAlone
}

// kernelHasMountSetattr reports whether flags can be set on a whole tree of mounts (Linux 5.12).
var kernelHasMountSetattr = sync.OnceValue(func() bool {
	// An invalid request on purpose: only a kernel without the call answers ENOSYS.
	err := unix.MountSetattr(-1, "", 0, &unix.MountAttr{})
	return !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM)
})

// EtcMounts bind the files of e, written into the folder dir, over those of the image.
func EtcMounts(e hardening.EtcFiles, dir string) []specs.Mount {
	out := make([]specs.Mount, 0, len(e))
	for _, name := range e.Names() {
		out = append(out, BindFile(filepath.Join(dir, name), "/etc/"+name))
	}
	return out
}

// BindFile mounts one file, read-only.
func BindFile(source, target string) specs.Mount {
	return specs.Mount{Type: "bind", Source: source, Destination: target, Options: []string{"bind", "ro", "nosuid", "nodev", "rprivate"}}
}

// BindFolder mounts a folder.
func BindFolder(source, target string, readOnly bool, how Binding) specs.Mount {
	options := []string{"bind", "nosuid", "nodev", "rprivate"}
	if how != BindAlone {
		options[0] = "rbind"
	}
	if how == BindTree {
		options = append(options, "rnosuid", "rnodev")
	}
	if readOnly {
		options = append(options, "ro")
		if how == BindTree {
			options = append(options, "rro")
		}
	}
	return specs.Mount{Type: "bind", Source: source, Destination: target, Options: options}
}
