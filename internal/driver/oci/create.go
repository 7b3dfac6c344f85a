package oci

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/go-runc"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/ociconfig"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/procid"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// creation makes a sandbox, step by step, and undoes what it made.
type creation struct{ *Driver }

const (
	// startTimeout bounds one start. runc needs 35 ms and runsc half a second; a host under heavy load
	// can take ten times that, and beyond this it is not waited for.
	startTimeout = 30 * time.Second
	// cleanupTimeout bounds clearing away after a failure. It runs on after the request has ended.
	cleanupTimeout = 20 * time.Second
)

// Create implements driver.Driver.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	rt, err := d.runtimes.For(ctx, spec, d.probed)
	if err != nil {
		return sandbox.Instance{}, err
	}
	return creation{d}.create(ctx, rt, rt.Without == "", spec)
}

// create starts a sandbox on a runtime, probed or not.
func (d creation) create(ctx context.Context, rt *ociRuntime, userNamespace bool, spec sandbox.Spec) (sandbox.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	unlock, err := d.locks.Lock(ctx, spec.ID)
	if err != nil {
		return sandbox.Instance{}, err
	}
	defer unlock()

	if there, err := d.Inspect(ctx, spec.ID); err == nil {
		return driver.Existing(there)
	} else if !errors.Is(err, sandbox.NotFound) {
		return sandbox.Instance{}, err
	}
	if err := hardening.CheckSources(spec); err != nil {
		return sandbox.Instance{}, err
	}
	rec := record{
		ID:      spec.ID,
		Runtime: spec.Runtime,
		Labels:  maps.Clone(spec.Labels),
		Created: time.Now().UTC().Truncate(time.Millisecond),
		Maker:   procid.This(),
	}
	var own *overlays // nil: it shares the inodes of its root file system
	if !rt.OwnKernel {
		if own, err = d.newOverlays(); err != nil {
			return sandbox.Instance{}, sandbox.Wrap(sandbox.Internal, err, "the root file system could not be prepared")
		}
		defer d.removing.Go(func() { // it takes milliseconds, for which no caller waits
			if err := own.remove(); err != nil {
				d.log.Error("overlays of a sandbox are left", "sandbox", spec.ID, "error", err)
			}
		})
	}
	if err := d.writeBundle(ctx, rt, userNamespace, own, spec, rec); err != nil {
		if errors.Is(err, os.ErrExist) { // another server was faster
			return d.existingNow(ctx, spec.ID)
		}
		return sandbox.Instance{}, err
	}
	if err := d.start(ctx, rt, spec.ID); err != nil {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		if left := removal(d).remove(cleanup, spec.ID); left != nil {
			d.log.Error("a sandbox that failed to start is not wholly removed", "sandbox", spec.ID, "error", left)
		}
		return sandbox.Instance{}, err
	}
	return rec.instance(sandbox.Running), nil
}

func (d creation) existingNow(ctx context.Context, id sandbox.ID) (sandbox.Instance, error) {
	there, err := d.Inspect(ctx, id)
	if err != nil {
		return sandbox.Instance{}, err
	}
	return driver.Existing(there)
}

func (d creation) writeBundle(ctx context.Context, rt *ociRuntime, userNamespace bool, own *overlays, spec sandbox.Spec, rec record) error {
	in := ociconfig.Input{
		Spec: spec, Runtime: rt.Runtime, Cgroup: d.cgroupPath(spec.ID), Binding: rt.Binding(ctx), UserNamespace: userNamespace,
	}
	var img image
	var err error
	if spec.Image == "" {
		img, in.RootMounts, err = d.hostRootfs(in.Binding)
	} else {
		img, err = d.image.prepare(spec.Image)
	}
	if err != nil {
		return err
	}
	if userNamespace || own != nil { // the runtime cannot make them
		if err := img.makeMountPointsOf(spec); err != nil {
			return err
		}
	}
	in.Rootfs = img.rootfs
	if own != nil {
		if in, err = d.fillOwn(in, own); err != nil {
			return err
		}
	}
	if userNamespace {
		if err := checkPassable(in.Rootfs); err != nil {
			return err
		}
	}
	in.Seccomp, err = hardening.SeccompOCI(rt.Runtime, spec.Loosen...)
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the system call filter could not be made")
	}
	etc := hardening.NewEtcFiles(spec, img.passwd, img.group)
	err = writeBundle(d.bundles(), rec, etc, func(bundle string) (*specs.Spec, error) {
		in.EtcMounts = ociconfig.EtcMounts(etc, filepath.Join(bundle, etcDir))
		return ociconfig.New(in), nil
	})
	if err != nil && !errors.Is(err, os.ErrExist) {
		return sandbox.Wrap(sandbox.Internal, err, "the sandbox could not be prepared")
	}
	return err
}

// start runs the container of a bundle, detached.
func (d creation) start(ctx context.Context, rt *ociRuntime, id sandbox.ID) error {
	null, err := openDevNull()
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the sandbox could not be started")
	}
	defer null.Close() //nolint:errcheck // /dev/null
	bundle := d.bundle(id)
	log := filepath.Join(bundle, logFile)
	_, err = rt.withLog(log).Run(ctx, string(id), bundle, &runc.CreateOpts{
		IO:      null,
		PidFile: filepath.Join(bundle, pidFile),
		Detach:  true,
	})
	if ctx.Err() != nil {
		return sandbox.Wrap(sandbox.Timeout, errors.Join(context.Cause(ctx), err), "the sandbox did not start in time")
	}
	if err != nil {
		cause := fmt.Errorf("%w: %s", err, lastError(log))
		return sandbox.Wrap(sandbox.Internal, cause, "the sandbox could not be started")
	}
	return d.awaitExec(ctx, id)
}

// runcInit begins the name of runc's own process in the container, until it has become PID 1's
// program. runc does not tell when that fails: it has let go of the container by then.
const runcInit = "runc:["

// awaitExec waits, some hundred microseconds as a rule, until PID 1 runs its program.
func (d creation) awaitExec(ctx context.Context, id sandbox.ID) error {
	fd, pid, err := removal(d).openInit(id)
	if errors.Is(err, errNotInCgroup) { // so soon, no other process can have got the number
		return sandbox.Wrap(sandbox.NotSupported, err, "the runtime does not put a sandbox under its limits (runsc must not run with --ignore-cgroups)")
	}
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the daemon of the sandbox cannot be run")
	}
	defer unix.Close(fd) //nolint:errcheck // a process handle
	for {
		if hasEnded(fd, 0) {
			return sandbox.Errorf(sandbox.Internal, "the daemon of the sandbox cannot be run")
		}
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err == nil && !strings.HasPrefix(string(comm), runcInit) && !hasEnded(fd, 0) {
			return nil
		}
		if hasEnded(fd, time.Millisecond) {
			continue
		}
		if ctx.Err() != nil {
			return sandbox.Wrap(sandbox.Timeout, context.Cause(ctx), "the sandbox did not start in time")
		}
	}
}

func isNotEmpty(err error) bool {
	return errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST)
}
