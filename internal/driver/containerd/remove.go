package containerd

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/cgroup"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// removal ends a sandbox and deletes what is left of it.
type removal struct{ *Driver }

const (
	// killWait is how long PID 1 may take to die of SIGKILL before it is killed again: a large memory to
	// give back takes a second.
	killWait = 5 * time.Second
	// removalPoll is the time between two attempts at what another caller or containerd itself is busy with.
	removalPoll = 20 * time.Millisecond
)

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
	return removal{d}.remove(ctx, id)
}

// remove takes away everything of a sandbox, its container's record last: until then it can be found
// again. The caller holds its lock.
func (d removal) remove(ctx context.Context, id sandbox.ID) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	c, err := d.container(ctx, id)
	if err != nil {
		return err
	}
	if c == nil {
		return d.removeEtc(id)
	}
	if !isMine(*c) {
		return taken(id)
	}
	if err := d.removeTask(ctx, id); err != nil {
		return engineError(err, "the sandbox was not removed")
	}
	if err := cgroup.Remove(ctx, d.cgroups.Of(string(id))); err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the sandbox left a control group")
	}
	if err := d.unmountRootfs(id); err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the sandbox left a mount")
	}
	if err := d.images.release(ctx, string(id)); err != nil {
		return engineError(err, "the root file system of the sandbox was not removed")
	}
	if err := d.removeEtc(id); err != nil {
		return err
	}
	if err := d.engine.ContainerService().Delete(ctx, string(id)); err != nil && !isNotFound(err) {
		return engineError(err, "the sandbox was not removed")
	}
	return nil
}

// removeTask kills what runs of a sandbox and makes its shim end. It tries until ctx ends: the task may
// change under its hands, and a shim that died is cleared away by containerd at its own time.
func (d removal) removeTask(ctx context.Context, id sandbox.ID) error {
	for {
		t, err := d.task(ctx, id)
		if err == nil && t == nil {
			return nil
		}
		if err == nil {
			err = d.endTask(ctx, id, t)
		}
		if err == nil || isNotFound(err) {
			continue // looked at once more: nothing is left when there is no task
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(removalPoll):
		}
	}
}

// endTask kills a task, waits for its end and deletes it.
func (d removal) endTask(ctx context.Context, id sandbox.ID, t *task.Process) error {
	service := d.engine.TaskService()
	if t.Status != task.Status_STOPPED {
		kill := func() error {
			_, err := service.Kill(ctx, &tasks.KillRequest{ContainerID: string(id), Signal: uint32(unix.SIGKILL)})
			return err
		}
		killErr := kill()
		if t.Status == task.Status_PAUSED || t.Status == task.Status_PAUSING {
			// With cgroup version 1 a frozen process takes no signal. Killed before and after: what is thawed
			// dies at once.
			_, _ = service.Resume(ctx, &tasks.ResumeTaskRequest{ContainerID: string(id)})
			killErr = kill()
		}
		waiting, cancel := context.WithTimeout(ctx, killWait)
		_, err := service.Wait(waiting, &tasks.WaitRequest{ContainerID: string(id)})
		cancel()
		if err != nil {
			return errors.Join(native(err), killErr)
		}
	}
	_, err := service.Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: string(id)})
	return err
}

func (d removal) removeEtc(id sandbox.ID) error {
	if err := os.RemoveAll(d.etc(id)); err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the sandbox left files")
	}
	return nil
}
