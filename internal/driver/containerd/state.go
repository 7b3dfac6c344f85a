package containerd

import (
	"context"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/core/containers"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/cgroup"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Inspect implements driver.Driver.
func (d *Driver) Inspect(ctx context.Context, id sandbox.ID) (sandbox.Instance, error) {
	if err := hardening.CheckID(id); err != nil {
		return sandbox.Instance{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	c, err := d.container(ctx, id)
	if err != nil {
		return sandbox.Instance{}, err
	}
	if c == nil || !isMine(*c) {
		return sandbox.Instance{}, sandbox.Errorf(sandbox.NotFound, "there is no sandbox %s", id)
	}
	t, err := d.task(ctx, id)
	if err != nil {
		return sandbox.Instance{}, engineError(err, "containerd does not tell the sandbox's state")
	}
	return instance(*c, t, d.cgroups), nil
}

// container returns the container of a sandbox's name, or nil.
func (d *Driver) container(ctx context.Context, id sandbox.ID) (*containers.Container, error) {
	c, err := d.engine.ContainerService().Get(ctx, string(id))
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, engineError(err, "containerd does not tell the sandbox's state")
	}
	return &c, nil
}

// task returns the task of a sandbox, or nil.
func (d *Driver) task(ctx context.Context, id sandbox.ID) (*task.Process, error) {
	got, err := d.engine.TaskService().Get(ctx, &tasks.GetRequest{ContainerID: string(id)})
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, native(err)
	}
	return got.Process, nil
}

// isMine reports whether a container was made by this driver.
func isMine(c containers.Container) bool { return c.Labels[labelMine] != "" }

// instance joins a container's record with its task, nil when there is none.
func instance(c containers.Container, t *task.Process, cgroups cgroup.Parent) sandbox.Instance {
	out := sandbox.Instance{ID: sandbox.ID(c.ID), State: sandbox.Lost, ExitCode: UnknownExitCode, CreatedAt: c.CreatedAt.UTC()}
	// Without a record that can be read it is shown without labels, and so belongs to no server.
	if rec, ok := recordOf(c); ok {
		out.Runtime, out.Labels = rec.Runtime, rec.Labels
	}
	// A sandbox that was not started in this time never will be: its server died in between.
	mayStart := c.Labels[labelStarted] == "" && time.Since(c.CreatedAt) < 2*changeTimeout
	switch status := t.GetStatus(); {
	case t == nil:
		if mayStart {
			out.State = sandbox.Starting
		}
	case status == task.Status_RUNNING:
		out.State = sandbox.Running
	case status == task.Status_PAUSED, status == task.Status_PAUSING:
		out.State = sandbox.Paused
	case status == task.Status_CREATED && mayStart:
		out.State = sandbox.Starting
	case status == task.Status_STOPPED:
		out.ExitCode = int(t.ExitStatus)
		out.OOMKilled = endedByOOM(cgroups.Of(string(out.ID)), t.ExitStatus)
	}
	if out.State != sandbox.Lost {
		out.ExitCode = 0
	}
	return out
}

// The exit codes of a PID 1 that a signal ended, SIGKILL being the last that lack of memory can lead to.
const (
	endedBySignal = 128
	endedByKill   = endedBySignal + 9
)

// endedByOOM reports whether lack of memory ended a sandbox: its kernel's count alone does not tell, as
// an exec may have run out of memory long before. The cgroup is there until the task is deleted.
func endedByOOM(group string, exitStatus uint32) bool {
	return exitStatus >= endedBySignal && exitStatus <= endedByKill && cgroup.OOMKilled(group)
}

// List implements driver.Driver.
func (d *Driver) List(ctx context.Context, labels map[string]string) ([]sandbox.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	all, err := d.engine.ContainerService().List(ctx, `labels."`+labelMine+`"==1`)
	if err != nil {
		return nil, engineError(err, "containerd does not tell what runs")
	}
	running, err := d.engine.TaskService().List(ctx, &tasks.ListTasksRequest{})
	if err != nil {
		return nil, engineError(err, "containerd does not tell what runs")
	}
	byID := make(map[string]*task.Process, len(running.Tasks))
	for _, t := range running.Tasks {
		byID[t.ID] = t
	}
	out := make([]sandbox.Instance, 0, len(all))
	for _, c := range all {
		if hardening.CheckID(sandbox.ID(c.ID)) != nil {
			continue
		}
		if i := instance(c, byID[c.ID], d.cgroups); driver.HasLabels(i.Labels, labels) {
			out = append(out, i)
		}
	}
	return out, nil
}
