package docker

import (
	"context"
	"path"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/cgroup"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// rootCgroup is the cgroup under which each sandbox gets its own. It is beside the host's services, so
// that the weight of one sandbox counts among them, too. An engine that makes cgroups itself puts containers
// in one group by default. There the weight would count among the containers alone, and the group would
// weigh as much as before. An engine that has systemd make them takes slices only, and puts containers
// beside the services by itself.
const rootCgroup = "/"

// engineGroup is where the engine puts a container: "" when this process does not see it, as a server in a
// container whose namespace of cgroups is not the host's.
type engineGroup struct {
	path    string
	systemd bool // whose files are not for others to write
}

// groupOf finds the cgroup of a container, by both ways in which engines name them.
func groupOf(c *container.InspectResponse) engineGroup {
	parent, slice := "/docker", "/system.slice"
	if c.HostConfig != nil && c.HostConfig.CgroupParent != "" {
		parent = c.HostConfig.CgroupParent
		slice = slicePath(parent)
	}
	for _, g := range []engineGroup{{path: path.Join("/", parent, c.ID)}, {path.Join(slice, "docker-"+c.ID+".scope"), true}} {
		if cgroup.Exists(g.path) {
			return g
		}
	}
	return engineGroup{}
}

// slicePath is where systemd puts a slice: a-b.slice is in a.slice.
func slicePath(slice string) string {
	name := strings.TrimSuffix(path.Base(slice), ".slice")
	dir := "/"
	for i := range len(name) {
		if name[i] == '-' {
			dir = path.Join(dir, name[:i]+".slice")
		}
	}
	return path.Join(dir, name+".slice")
}

// group returns the cgroup of a sandbox. Only the first question is the engine's. NotFound: there is no such sandbox.
func (d *Driver) group(ctx context.Context, id sandbox.ID) (engineGroup, error) {
	if err := hardening.CheckID(id); err != nil {
		return engineGroup{}, err
	}
	if known, ok := d.groups.Load(id); ok {
		return known.(engineGroup), nil //nolint:forcetypeassert // the only type
	}
	c, err := d.container(ctx, id)
	if err != nil {
		return engineGroup{}, err
	}
	if c == nil || !isMine(c) {
		return engineGroup{}, sandbox.Errorf(sandbox.NotFound, "there is no sandbox %s", id)
	}
	g := groupOf(c)
	d.groups.Store(id, g)
	d.oom.Add(string(id), g.path)
	return g, nil
}

// Weigh implements driver.Weigher. It writes the cgroup itself where it may: the engine starts a program for it,
// which waits for its turn behind what is to be weighed.
func (d *Driver) Weigh(ctx context.Context, id sandbox.ID, weight driver.Weight) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	g, err := d.group(ctx, id)
	if err != nil {
		return err
	}
	if g.path != "" && !g.systemd && cgroup.SetWeight(g.path, int(weight)) == nil {
		return nil
	}
	_, err = d.engine.ContainerUpdate(ctx, string(id), client.ContainerUpdateOptions{
		Resources: &container.Resources{CPUShares: int64(cgroup.EngineShares(int(weight)))},
	})
	if isNotFound(err) {
		return sandbox.Errorf(sandbox.NotFound, "there is no sandbox %s", id)
	}
	if err != nil {
		return engineError(err, "the sandbox was not given another weight")
	}
	if g.path != "" { // newer runtimes turn shares into a weight by another rule
		_ = cgroup.SetWeight(g.path, int(weight)) // what the engine made of it is near
	}
	return nil
}

// Load implements driver.Meter.
func (d *Driver) Load(ctx context.Context, id sandbox.ID) (driver.Load, error) {
	g, err := d.group(ctx, id)
	if err != nil {
		return driver.Load{}, err
	}
	if g.path == "" {
		return driver.Load{}, sandbox.Errorf(sandbox.NotSupported, "the control group of sandbox %s is not seen from here", id)
	}
	used, err := cgroup.Usage(g.path)
	if err == nil {
		return driver.Load(used), nil
	}
	d.groups.Delete(id)
	if _, gone := d.group(ctx, id); gone != nil {
		return driver.Load{}, gone
	}
	return driver.Load{}, sandbox.Wrap(sandbox.NotSupported, err, "the control group of sandbox %s cannot be used", id)
}
