package docker

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func encodeNames(labels map[string]string) (string, error) {
	data, err := json.Marshal(slices.Sorted(maps.Keys(labels)))
	return string(data), err
}

// specLabels returns the labels of the Spec from those of the container.
func specLabels(all map[string]string) map[string]string {
	var names []string
	// A container of ours has the list; whatever else it has then is not from a Spec.
	if json.Unmarshal([]byte(all[labelNames]), &names) != nil {
		return nil
	}
	out := make(map[string]string, len(names))
	for _, name := range names {
		if value, ok := all[name]; ok {
			out[name] = value
		}
	}
	return out
}

// Inspect implements driver.Driver.
func (d *Driver) Inspect(ctx context.Context, id sandbox.ID) (sandbox.Instance, error) {
	if err := hardening.CheckID(id); err != nil {
		return sandbox.Instance{}, err
	}
	c, err := d.container(ctx, id)
	if err != nil {
		return sandbox.Instance{}, err
	}
	if c == nil || !isMine(c) {
		return sandbox.Instance{}, sandbox.Errorf(sandbox.NotFound, "there is no sandbox %s", id)
	}
	created, err := time.Parse(time.RFC3339Nano, c.Created)
	if err != nil {
		return sandbox.Instance{}, sandbox.Wrap(sandbox.Internal, err, "the container engine does not tell the sandbox's age")
	}
	out := instance(id, c.State.Status, created, c.Config.Labels)
	if out.State == sandbox.Running { // it need not be asked for again
		g := groupOf(c)
		if _, known := d.groups.LoadOrStore(id, g); !known {
			d.oom.Add(string(id), g.path)
		}
	}
	if out.State == sandbox.Lost {
		out.OOMKilled, out.ExitCode = c.State.OOMKilled || d.oom.Killed(string(id)), c.State.ExitCode
	}
	return out, nil
}

// container returns the container of a sandbox's name, or nil.
func (d *Driver) container(ctx context.Context, id sandbox.ID) (*container.InspectResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	got, err := d.engine.ContainerInspect(ctx, string(id), client.ContainerInspectOptions{})
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, engineError(err, "the container engine does not tell the sandbox's state")
	}
	return &got.Container, nil
}

// isMine reports whether a container was made by this driver.
func isMine(c *container.InspectResponse) bool {
	return c.Config != nil && c.State != nil && c.Config.Labels[labelMine] != ""
}

// taken is the error for a sandbox whose name a container of another client has.
func taken(id sandbox.ID) error {
	return sandbox.Errorf(sandbox.Conflict, "the name of sandbox %s is taken by another container", id)
}

// instance joins what inspecting and listing both tell. Times are cut to the seconds that listing has.
func instance(id sandbox.ID, state container.ContainerState, created time.Time, labels map[string]string) sandbox.Instance {
	out := sandbox.Instance{
		ID:        id,
		State:     sandbox.Lost,
		Runtime:   labels[labelRuntime],
		Labels:    specLabels(labels),
		CreatedAt: created.UTC().Truncate(time.Second),
	}
	switch state {
	case container.StateRunning:
		out.State = sandbox.Running
	case container.StatePaused:
		out.State = sandbox.Paused
	case container.StateCreated:
		// A sandbox that was not started in this time never will be: its server died in between.
		if time.Since(created) < 2*changeTimeout {
			out.State = sandbox.Starting
		}
	}
	return out
}

// List implements driver.Driver.
func (d *Driver) List(ctx context.Context, labels map[string]string) ([]sandbox.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	filters := make(client.Filters).Add("label", labelMine+"=1")
	for k, v := range labels {
		filters.Add("label", k+"="+v)
	}
	got, err := d.engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: filters})
	if err != nil {
		return nil, engineError(err, "the container engine does not tell what runs")
	}
	out := make([]sandbox.Instance, 0, len(got.Items))
	for _, c := range got.Items {
		id, ok := idOf(c.Names)
		if !ok {
			continue
		}
		i := instance(id, c.State, time.Unix(c.Created, 0), c.Labels)
		// The filter of the engine also finds labels that come from the image.
		if !driver.HasLabels(i.Labels, labels) {
			continue
		}
		if i.State == sandbox.Lost { // how it ended is only told one by one; few are in that state
			if i, err = d.Inspect(ctx, id); sandbox.KindOf(err) == sandbox.NotFound {
				continue // removed since
			}
			if err != nil {
				return nil, err
			}
		}
		out = append(out, i)
	}
	return out, nil
}

func idOf(names []string) (sandbox.ID, bool) {
	for _, name := range names {
		if id := sandbox.ID(strings.TrimPrefix(name, "/")); hardening.CheckID(id) == nil {
			return id, true
		}
	}
	return "", false
}
