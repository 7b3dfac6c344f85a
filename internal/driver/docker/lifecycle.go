package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/cgroup"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/freeze"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/runtimes"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// creation makes a sandbox, step by step, and undoes what it made.
type creation struct{ *Driver }

// Create implements driver.Driver.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	if err := hardening.CheckSpec(spec); err != nil {
		return sandbox.Instance{}, err
	}
	rt, problem, err := probes{d}.probed(ctx, spec.Runtime)
	if err := runtimes.Refused(spec.Runtime, problem, err); err != nil {
		return sandbox.Instance{}, err
	}
	return creation{d}.create(ctx, rt, spec)
}

// create starts a sandbox on a runtime, probed or not.
func (d creation) create(ctx context.Context, rt engineRuntime, spec sandbox.Spec) (sandbox.Instance, error) {
	unlock, err := d.locks.Lock(ctx, spec.ID)
	if err != nil {
		return sandbox.Instance{}, err
	}
	defer unlock()

	there, err := d.Inspect(ctx, spec.ID)
	if err == nil {
		return d.existing(ctx, there)
	}
	if !errors.Is(err, sandbox.NotFound) {
		return sandbox.Instance{}, err
	}
	image, err := d.checkImage(ctx, spec)
	if err != nil {
		return sandbox.Instance{}, err
	}
	if err := hardening.CheckSources(spec); err != nil {
		return sandbox.Instance{}, err
	}
	made, err := d.make(ctx, rt, spec, image)
	if err != nil {
		return sandbox.Instance{}, err
	}
	if !made { // another server was faster
		if there, err = d.Inspect(ctx, spec.ID); errors.Is(err, sandbox.NotFound) {
			return sandbox.Instance{}, errors.Join(taken(spec.ID), d.removeEtc(spec.ID))
		} else if err != nil {
			return sandbox.Instance{}, err
		}
		return d.existing(ctx, there)
	}
	there, err = d.start(ctx, spec.ID)
	if err != nil {
		d.discard(ctx, spec.ID)
	}
	return there, err
}

// existing answers a Create whose container is there. A container that is made but not started is a server's
// that is about to start it, or died before: starting it twice does no harm.
func (d creation) existing(ctx context.Context, there sandbox.Instance) (sandbox.Instance, error) {
	if there.State == sandbox.Starting {
		return d.start(ctx, there.ID)
	}
	return driver.Existing(there)
}

// declared is what the engine would take over from an image.
type declared struct {
	volumes []hardening.Tmpfs // in the place of the image's: the engine's own would have no bound
	env     []string          // the names of its variables, which would steer PID 1
}

// checkImage reports an image that is not there, and returns what it declares.
func (d creation) checkImage(ctx context.Context, spec sandbox.Spec) (declared, error) {
	image := spec.Image
	if image == "" {
		return declared{}, sandbox.Errorf(sandbox.NotSupported, "this driver needs an image: it cannot use the host's own programs")
	}
	got, err := d.findImage(ctx, image)
	if err != nil || got.Config == nil {
		return declared{}, err
	}
	var out declared
	for _, variable := range got.Config.Env {
		name, _, _ := strings.Cut(variable, "=")
		out.env = append(out.env, name)
	}
	out.volumes, err = hardening.VolumeMounts(slices.Collect(maps.Keys(got.Config.Volumes)), spec)
	return out, err
}

// findImage asks the engine for an image. NotFound: there is none of that name.
func (d creation) findImage(ctx context.Context, image string) (client.ImageInspectResult, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	got, err := d.engine.ImageInspect(ctx, image)
	if isNotFound(err) {
		return got, sandbox.Wrap(sandbox.NotFound, err, "there is no image %.200q", image)
	}
	if err != nil {
		return got, engineError(err, "the container engine does not tell whether the image is there")
	}
	return got, nil
}

// ImageNow implements driver.ImageTeller.
func (d *Driver) ImageNow(ctx context.Context, image string) (string, error) {
	got, err := creation{d}.findImage(ctx, image)
	return got.ID, err
}

// make makes the container without starting it. made is false when there is one already.
//
// The engine finishes a request whether or not the client waits for the answer. So a request that makes
// something is not cut off with ctx: nothing would tell when it is time to take away what it made.
func (d creation) make(ctx context.Context, rt engineRuntime, spec sandbox.Spec, image declared) (made bool, err error) {
	options, err := d.options(rt, spec, image)
	if err != nil {
		return false, err
	}
	if ctx.Err() != nil {
		late := sandbox.Wrap(sandbox.Timeout, context.Cause(ctx), "the sandbox was not made in time")
		return false, errors.Join(late, d.removeEtc(spec.ID))
	}
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), changeTimeout)
	defer cancel()
	_, err = d.engine.ContainerCreate(own, options)
	if isConflict(err) {
		return false, nil
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		d.discard(ctx, spec.ID)
		return false, engineError(err, "the sandbox was not made")
	}
	return true, nil
}

// options writes the sandbox's files of /etc and returns the engine's options.
func (d creation) options(rt engineRuntime, spec sandbox.Spec, image declared) (client.ContainerCreateOptions, error) {
	seccomp, err := hardening.SeccompJSON(rt.Runtime, spec.Loosen...)
	if err != nil {
		return client.ContainerCreateOptions{}, sandbox.Wrap(sandbox.Internal, err, "the system call filter could not be made")
	}
	etc := d.etc(spec.ID)
	options, err := containerOptions(spec, rt, seccomp, etc)
	if err != nil {
		return client.ContainerCreateOptions{}, err
	}
	options.Config.Env = withoutImages(options.Config.Env, image.env)
	for _, v := range image.volumes {
		options.HostConfig.Tmpfs[v.Target] = strings.Join(v.Options(spec.UID), ",")
	}
	// Another server of this host may have made the folder just now, with the same files.
	if err := hardening.NewEtcFiles(spec, nil, nil).Write(etc); err != nil && !errors.Is(err, fs.ErrExist) {
		return client.ContainerCreateOptions{}, sandbox.Wrap(sandbox.Internal, err, "the sandbox could not be prepared")
	}
	return options, nil
}

// start starts a container that was made and tells what came of it.
func (d creation) start(ctx context.Context, id sandbox.ID) (sandbox.Instance, error) {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), changeTimeout)
	defer cancel()
	if _, err := d.engine.ContainerStart(own, string(id), client.ContainerStartOptions{}); err != nil {
		return sandbox.Instance{}, engineError(err, "the sandbox did not start")
	}
	there, err := d.Inspect(own, id)
	if err != nil {
		return sandbox.Instance{}, err
	}
	if there.State == sandbox.Lost {
		return sandbox.Instance{}, sandbox.Wrap(sandbox.Internal, fmt.Errorf("exit code %d", there.ExitCode), "the daemon of the sandbox ended at once")
	}
	if ctx.Err() != nil {
		return sandbox.Instance{}, sandbox.Wrap(sandbox.Timeout, context.Cause(ctx), "the sandbox did not start in time")
	}
	return there, nil
}

// discard takes away a sandbox that failed to start, also when its caller has gone.
func (d creation) discard(ctx context.Context, id sandbox.ID) {
	if err := d.remove(context.WithoutCancel(ctx), id); err != nil {
		d.log.Error("a sandbox that failed to start is not wholly removed", "sandbox", id, "error", err)
	}
}

// Remove implements driver.Driver.
func (d *Driver) Remove(ctx context.Context, id sandbox.ID) error {
	if err := hardening.CheckID(id); err != nil {
		return err
	}
	unlock, err := d.locks.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	return d.remove(ctx, id)
}

// removalPoll is how often an end of a removal that another request began is looked for.
const removalPoll = 20 * time.Millisecond

func (d *Driver) remove(ctx context.Context, id sandbox.ID) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	c, err := d.container(ctx, id)
	if err != nil {
		return err
	}
	if c != nil && !isMine(c) {
		return taken(id)
	}
	if c != nil {
		if err := d.removeContainer(ctx, id, c); err != nil {
			return err
		}
	}
	d.groups.Delete(id)
	d.oom.Forget(string(id))
	return d.removeEtc(id)
}

// removeContainer removes a container and ends all that runs in it, also what the engine does not know of.
func (d *Driver) removeContainer(ctx context.Context, id sandbox.ID, c *container.InspectResponse) error {
	switch {
	case c.State.Status == container.StateCreated:
		d.remind(ctx, c.ID)
	case c.State.Paused:
		// A frozen process takes no signal, and the engine stops trying only after 10 s. If this fails, the
		// removal below says so.
		_, _ = d.engine.ContainerUnpause(ctx, string(id), client.ContainerUnpauseOptions{})
	}
	group := groupOf(c)
	for {
		_, err := d.engine.ContainerRemove(ctx, string(id), client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		switch {
		case err == nil, isNotFound(err):
			if c.State.Status == container.StateCreated {
				endShim(c.ID)
			}
			return endGroup(ctx, group)
		case !isConflict(err):
			return engineError(err, "the sandbox was not removed")
		}
		select { // a removal is under way
		case <-ctx.Done():
			return engineError(errors.Join(context.Cause(ctx), err), "the sandbox was not removed")
		case <-time.After(removalPoll):
		}
	}
}

// endGroup ends what still runs in the cgroup of a container that is removed, where it is seen.
func endGroup(ctx context.Context, group engineGroup) error {
	if group.path == "" {
		return nil
	}
	if err := cgroup.Remove(ctx, group.path); err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the sandbox left processes")
	}
	return nil
}

func (d *Driver) etcRoot() string { return d.root + "/etc" }

// etc is the folder of a sandbox's files of /etc.
func (d *Driver) etc(id sandbox.ID) string { return filepath.Join(d.etcRoot(), string(id)) }

func (d *Driver) removeEtc(id sandbox.ID) error {
	if err := os.RemoveAll(d.etc(id)); err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the sandbox left files")
	}
	return nil
}

// Pause implements driver.Pauser.
func (d *Driver) Pause(ctx context.Context, id sandbox.ID) error {
	return d.freeze(ctx, id, sandbox.Paused)
}

// Resume implements driver.Pauser.
func (d *Driver) Resume(ctx context.Context, id sandbox.ID) error {
	return d.freeze(ctx, id, sandbox.Running)
}

func (d *Driver) freeze(ctx context.Context, id sandbox.ID, want sandbox.State) error {
	f := freeze.Freezer{Locks: &d.locks, Timeout: changeTimeout, Inspect: d.Inspect}
	return f.To(ctx, id, want, func(ctx context.Context, _ sandbox.Instance) (err error) {
		if want == sandbox.Paused {
			_, err = d.engine.ContainerPause(ctx, string(id), client.ContainerPauseOptions{})
		} else {
			_, err = d.engine.ContainerUnpause(ctx, string(id), client.ContainerUnpauseOptions{})
		}
		if err != nil {
			return engineError(err, fmt.Sprintf("sandbox %s did not become %s", id, want))
		}
		return nil
	})
}
