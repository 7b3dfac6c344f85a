package containerd

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/api/services/tasks/v1"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/freeze"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

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
			_, err = d.engine.TaskService().Pause(ctx, &tasks.PauseTaskRequest{ContainerID: string(id)})
		} else {
			_, err = d.engine.TaskService().Resume(ctx, &tasks.ResumeTaskRequest{ContainerID: string(id)})
		}
		if err != nil {
			return engineError(err, fmt.Sprintf("sandbox %s did not become %s", id, want))
		}
		return nil
	})
}
