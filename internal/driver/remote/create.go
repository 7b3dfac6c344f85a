package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/e2b/envd/process"
	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/platform/confine"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/platform/retry"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar/nest"
)

// lock keeps other servers, and other calls, from making or removing a sandbox.
func (r *records) lock(ctx context.Context, id sandbox.ID) (unlock func(), err error) {
	l, err := lockedfile.WaitLock(ctx, r.path(id, ".lock"))
	if errors.Is(err, lockedfile.ErrBusy) || ctx.Err() != nil {
		return nil, sandbox.Wrap(sandbox.Timeout, err, "the sandbox is busy")
	}
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the sandbox cannot be locked")
	}
	return func() { _ = l.Unlock() }, nil
}

// check refuses what cannot be had, before anything is made.
func check(spec sandbox.Spec) error {
	if err := hardening.CheckSpec(spec); err != nil {
		return err
	}
	switch {
	case spec.Runtime != runtimeName:
		return sandbox.Errorf(sandbox.NotSupported, "runtime %.40q cannot be used: the service decides what isolates its sandboxes", spec.Runtime)
	case spec.Image == "":
		return sandbox.Errorf(sandbox.NotSupported, "this driver needs a template of the service: it cannot use the host's own programs")
	case spec.Volume != nil:
		return sandbox.Errorf(sandbox.NotSupported, "this driver keeps no files on volumes")
	case spec.ClaimPool != "":
		return sandbox.Errorf(sandbox.NotSupported, "this driver claims sandboxes of no warm pool of a cluster")
	}
	for _, point := range spec.Loosen {
		if strings.HasPrefix(string(point), "seccomp.") {
			return sandbox.Errorf(sandbox.NotSupported, "%s cannot be loosened here: the service's own filter holds, too", point)
		}
	}
	if err := checkTargets(spec.Mounts); err != nil {
		return err
	}
	return hardening.CheckMounts(spec)
}

// checkTargets refuses mounts where a sandbox has no tree for them.
func checkTargets(mounts []sandbox.Mount) error {
	trees := nest.Mounts("/")
	for _, m := range mounts {
		if m.Target == sandbox.RunDir {
			continue
		}
		if !slices.ContainsFunc(trees, func(t nestMount) bool { return t.Target == m.Target }) {
			return sandbox.Errorf(sandbox.NotSupported, "a mount at %.200q: with the driver remote sandboxes have mounts at %s, %s, %s, %s and %s alone",
				m.Target, sandbox.UserDataDir, sandbox.SkillsDir, sandbox.PluginsDir, sandbox.CodeAPIDir, sandbox.RunDir)
		}
	}
	return nil
}

// creation makes a sandbox, step by step.
type creation struct{ *Driver }

// Create implements driver.Driver and, for the copies, driver.Remote. Of a sandbox that runs already it copies and
// attaches nothing: another server may have it.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	if err := check(spec); err != nil {
		return sandbox.Instance{}, err
	}
	unlock, err := d.records.lock(ctx, spec.ID)
	if err != nil {
		return sandbox.Instance{}, err
	}
	defer unlock()
	d.look()
	all, err := d.find(ctx, spec.ID)
	if err != nil {
		return sandbox.Instance{}, err
	}
	if len(all) > 0 {
		there, err := d.instance(ctx, all[0], true)
		if err != nil {
			return there, err
		}
		return driver.Existing(there)
	}
	there, err := creation{d}.make(ctx, spec)
	if err != nil {
		if e := d.remove(context.WithoutCancel(ctx), spec.ID); e != nil {
			d.o.Log.Error("a sandbox that failed to start is not wholly removed; the service ends it", "sandbox", spec.ID, "within", d.o.Lifetime, "error", e)
		}
	}
	return there, err
}

// make makes a sandbox, step by step. Its caller removes what is left when it fails.
func (d creation) make(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	metadata, err := d.records.metadata(spec)
	if err != nil {
		return sandbox.Instance{}, err
	}
	if ctx.Err() != nil {
		return sandbox.Instance{}, sandbox.Wrap(sandbox.Timeout, context.Cause(ctx), "the sandbox was not made in time")
	}
	// The service may make it whether or not this server waits for the answer: only after that it can be taken away.
	m, err := d.service.make(context.WithoutCancel(ctx), newSandbox{
		Template: spec.Image, Timeout: int(d.o.Lifetime / time.Second), Metadata: metadata, Secure: true,
	})
	if errors.Is(err, sandbox.NotFound) {
		err = sandbox.Wrap(sandbox.NotFound, err, "the service has no template %.200q", spec.Image)
	}
	if err != nil {
		return sandbox.Instance{}, err
	}
	m.Metadata = metadata
	e := d.service.envd(m)
	if err := d.fill(ctx, e, spec); err != nil {
		return sandbox.Instance{}, err
	}
	x, err := d.start(ctx, e, m, spec.ID)
	if err != nil {
		return sandbox.Instance{}, err
	}
	if err := d.attachNew(ctx, x, spec); err != nil {
		return sandbox.Instance{}, err
	}
	full, err := d.service.get(ctx, m.ID)
	if err != nil {
		return sandbox.Instance{}, err
	}
	full.Metadata = metadata
	return d.instance(ctx, full, true)
}

// fill uploads the programs, the certificate and the order.
func (d creation) fill(ctx context.Context, e *envd, spec sandbox.Spec) error {
	order, err := orderOf(spec)
	if err != nil {
		return err
	}
	cert, err := d.o.Authority.Sandbox(spec.ID)
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the sandbox's certificate could not be made")
	}
	files := []upload{
		{name: nest.BridgeFile, file: d.o.Bridge}, {name: nest.DaemonFile, file: spec.Daemon}, {name: nest.OrderFile, text: order},
	}
	for name, text := range cert.Files() {
		files = append(files, upload{name: nest.CertsFolder + "/" + name, text: text})
	}
	return e.upload(ctx, files)
}

// orderOf is what the sandbox's end is told of a Spec.
func orderOf(spec sandbox.Spec) ([]byte, error) {
	r, err := hardening.FindRuntime(spec.Runtime)
	if err != nil {
		return nil, err
	}
	filter, err := hardening.SeccompFilter(r, spec.Loosen...)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the system call filter could not be made")
	}
	text, err := confine.Argument(confine.Order{Rlimits: hardening.OwnRlimits(spec), Env: hardening.Environment()}, filter)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the sandbox cannot be described")
	}
	o := nest.Order{
		UID: spec.UID, Argv: append([]string{sandbox.DaemonPath, confine.Command, text, sandbox.DaemonPath}, spec.Args...), Etc: map[string]string{},
	}
	shm := hardening.Tmpfs{Target: "/dev/shm", Bytes: hardening.ShmBytes(spec), Mode: 0o1777}
	for _, t := range append(hardening.TmpfsMounts(spec.Limits), shm) {
		o.Tmpfs = append(o.Tmpfs, nest.Tmpfs{Target: t.Target, Options: fmt.Sprintf("size=%d,nr_inodes=%d,mode=%04o", t.Bytes, t.Inodes(), t.Mode)})
	}
	for name, text := range hardening.NewEtcFiles(spec, nil, nil) {
		o.Etc[name] = string(text)
	}
	out, err := json.Marshal(o)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the sandbox cannot be described")
	}
	return out, nil
}

// start starts the process that is the sandbox.
func (d creation) start(ctx context.Context, e *envd, m made, id sandbox.ID) (*box, error) {
	ctx, cancel := context.WithTimeout(ctx, makeTimeout)
	defer cancel()
	no := false
	pid, s, err := e.start(ctx, d.closing, &process.StartRequest{Process: shell(prepareCommand + serveCommand), Stdin: &no})
	if err != nil {
		return nil, err
	}
	return d.adopt(&box{id: id, made: m, envd: e, ended: make(chan struct{})}, pid, s), nil
}

// attachNew attaches a sandbox that was just started, and copies the sources of its mounts. When the sandbox ends
// meanwhile, that says what is wrong.
func (d creation) attachNew(ctx context.Context, x *box, spec sandbox.Spec) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-x.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := d.connect(ctx, x, remembered{spec.UID, spec.Limits}, driver.Attachment{ID: spec.ID, Token: spec.Token, Mounts: spec.Mounts})
	if err == nil {
		var targets []string
		for _, m := range spec.Mounts {
			if m.Target != sandbox.RunDir {
				targets = append(targets, m.Target)
			}
		}
		err = d.Push(ctx, spec.ID, targets...)
	}
	if err != nil && d.boxes.isOver(x) {
		why := errors.New(d.boxes.lastWords(x))
		return sandbox.Wrap(sandbox.NotSupported, why, "the sandbox ended while it started: the service must let a sandbox make user namespaces")
	}
	return err
}

// Remove implements driver.Driver.
func (d *Driver) Remove(ctx context.Context, id sandbox.ID) error {
	if err := hardening.CheckID(id); err != nil {
		return err
	}
	unlock, err := d.records.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	return d.remove(ctx, id)
}

// remove ends the service's sandbox, and waits until it is listed no more. The caller has the lock.
func (d *Driver) remove(ctx context.Context, id sandbox.ID) error {
	ctx, cancel := context.WithTimeout(ctx, makeTimeout)
	defer cancel()
	d.tunnel.Drop(id)
	for pauses := retry.Doubling(pauseFirst, pauseMost); ; {
		all, err := d.find(ctx, id)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			break
		}
		for _, m := range all {
			if err := d.service.kill(ctx, m.ID); err != nil {
				return err
			}
		}
		if all, err = d.find(ctx, id); err == nil && len(all) == 0 {
			break
		}
		select {
		case <-time.After(pauses.NextBackOff()):
		case <-ctx.Done():
			return sandbox.Wrap(sandbox.Timeout, ctx.Err(), "the service still has the sandbox")
		}
	}
	if x := d.boxes.get(id); x != nil {
		d.ended(x)
		d.boxes.drop(x)
	}
	return d.records.forget(id)
}
