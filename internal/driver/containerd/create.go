package containerd

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/ociconfig"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// creation makes a sandbox, step by step, and undoes what it made.
type creation struct{ *Driver }

// Labels of the driver's containers.
const (
	labelMine    = "io.skerry.containerd"         // "1" on every container of this driver
	labelStarted = "io.skerry.containerd.started" // "1" once its task ran: without a task it is Lost then
)

// extension is the name of the record in a container. Its type URL is of no meaning to containerd.
const extension = "io.skerry.containerd.sandbox"

// record is what is remembered of a sandbox besides what containerd tells.
type record struct {
	Runtime string            `json:"runtime"` // Spec.Runtime
	Labels  map[string]string `json:"labels"`  // Spec.Labels
	Claim   string            `json:"claim"`   // a random word of the Create that made it
}

// recordOf returns the record of a container. ok is false for another client's container.
func recordOf(c containers.Container) (rec record, ok bool) {
	ext := c.Extensions[extension]
	return rec, ext != nil && json.Unmarshal(ext.GetValue(), &rec) == nil
}

// Create implements driver.Driver.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	rt, err := d.runtimes.For(ctx, spec, probes{d}.probed)
	if err != nil {
		return sandbox.Instance{}, err
	}
	return creation{d}.create(ctx, rt, rt.Without == "", spec)
}

// create starts a sandbox on a runtime, probed or not.
func (d creation) create(ctx context.Context, rt *ociRuntime, userNamespace bool, spec sandbox.Spec) (sandbox.Instance, error) {
	unlock, err := d.locks.Lock(ctx, spec.ID)
	if err != nil {
		return sandbox.Instance{}, err
	}
	defer unlock()

	there, err := d.Inspect(ctx, spec.ID)
	if err == nil {
		return driver.Existing(there)
	}
	if !errors.Is(err, sandbox.NotFound) {
		return sandbox.Instance{}, err
	}
	img, err := d.images.find(ctx, spec.Image)
	if err != nil {
		return sandbox.Instance{}, err
	}
	if img.tmpfs, err = hardening.VolumeMounts(img.volumes, spec); err != nil {
		return sandbox.Instance{}, err
	}
	if err := hardening.CheckSources(spec); err != nil {
		return sandbox.Instance{}, err
	}
	claimed, err := d.claim(ctx, rt, userNamespace, spec, img)
	if err != nil {
		return sandbox.Instance{}, err
	}
	if !claimed { // another server was faster
		if there, err = d.Inspect(ctx, spec.ID); errors.Is(err, sandbox.NotFound) {
			return sandbox.Instance{}, taken(spec.ID)
		} else if err != nil {
			return sandbox.Instance{}, err
		}
		return driver.Existing(there)
	}
	// containerd ends its work on a request whose caller has gone, half-done. So what is begun is not cut
	// off with ctx; what is not waited for any more is taken away again.
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), changeTimeout)
	defer cancel()
	err = d.start(own, userNamespace, spec, img)
	if err == nil && ctx.Err() != nil {
		err = sandbox.Wrap(sandbox.Timeout, context.Cause(ctx), "the sandbox did not start in time")
	}
	if err == nil {
		there, err = d.running(own, spec.ID)
	}
	if err != nil {
		d.discard(ctx, spec.ID)
		return sandbox.Instance{}, err
	}
	return there, nil
}

// taken is the error for a sandbox whose name a container of another client has.
func taken(id sandbox.ID) error {
	return sandbox.Errorf(sandbox.Conflict, "the name of sandbox %s is taken by another container", id)
}

// claim makes the container's record. claimed is false when there is one already.
func (d creation) claim(ctx context.Context, rt *ociRuntime, userNamespace bool, spec sandbox.Spec, img image) (claimed bool, err error) {
	mine := rand.Text()
	c, err := d.newContainer(ctx, rt, userNamespace, spec, img, mine)
	if err != nil {
		return false, sandbox.Wrap(sandbox.Internal, err, "the sandbox could not be prepared")
	}
	if ctx.Err() != nil {
		return false, sandbox.Wrap(sandbox.Timeout, context.Cause(ctx), "the sandbox was not made in time")
	}
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	_, err = d.engine.ContainerService().Create(own, c)
	if isAlreadyExists(err) {
		return false, nil
	}
	if err != nil {
		d.deleteRecord(ctx, spec.ID, mine)
		return false, engineError(err, "the sandbox was not made")
	}
	return true, nil
}

// deleteRecord takes away a record whose making failed: the answer alone may be what was lost. A record that
// another server made meanwhile is not touched.
func (d creation) deleteRecord(ctx context.Context, id sandbox.ID, claim string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	c, err := d.container(ctx, id)
	if err != nil || c == nil {
		return // nothing to remove, or no containerd to do it; List shows it then
	}
	if rec, ok := recordOf(*c); ok && rec.Claim == claim {
		d.discard(ctx, id)
	}
}

// newContainer returns the record of a container: what it is, and the whole hardening.
func (d creation) newContainer(ctx context.Context, rt *ociRuntime, userNamespace bool, spec sandbox.Spec, img image, claim string) (containers.Container, error) {
	seccomp, err := hardening.SeccompOCI(rt.Runtime, spec.Loosen...)
	if err != nil {
		return containers.Container{}, err
	}
	config, err := typeurl.MarshalAny(ociconfig.New(ociconfig.Input{
		Spec:      spec,
		Volumes:   img.tmpfs,
		Runtime:   rt.Runtime,
		Rootfs:    "rootfs",
		EtcMounts: ociconfig.EtcMounts(hardening.NewEtcFiles(spec, nil, nil), d.etc(spec.ID)),
		Cgroup:    d.cgroups.Of(string(spec.ID)),
		Binding:   rt.Binding(ctx),
		Seccomp:   seccomp,

		UserNamespace: userNamespace,
	}))
	if err != nil {
		return containers.Container{}, err
	}
	remembered, err := json.Marshal(record{Runtime: spec.Runtime, Labels: spec.Labels, Claim: claim})
	if err != nil {
		return containers.Container{}, err
	}
	return containers.Container{
		ID:          string(spec.ID),
		Labels:      map[string]string{labelMine: "1"},
		Image:       img.name,
		Runtime:     rt.info,
		Spec:        config,
		SnapshotKey: string(spec.ID),
		Snapshotter: snapshotter,
		Extensions:  map[string]typeurl.Any{extension: &anypb.Any{TypeUrl: extension, Value: remembered}},
	}, nil
}

// start makes all else of a claimed sandbox and runs it. The image's own passwd and group are not read:
// they are in a snapshot that is mounted nowhere yet.
func (d creation) start(ctx context.Context, userNamespace bool, spec sandbox.Spec, img image) error {
	etc := d.etc(spec.ID)
	if err := os.RemoveAll(etc); err != nil { // of a sandbox whose removal a crash interrupted
		return sandbox.Wrap(sandbox.Internal, err, "the sandbox could not be prepared")
	}
	if err := hardening.NewEtcFiles(spec, nil, nil).Write(etc); err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the sandbox could not be prepared")
	}
	rootfs, err := d.images.prepare(ctx, string(spec.ID), img)
	if err != nil {
		return engineError(err, "the root file system of the sandbox was not made")
	}
	if userNamespace {
		if err := d.makeMountPoints(spec, img.tmpfs, rootfs); err != nil {
			return err
		}
	}
	// Without names for its streams a shim opens /dev/null: output of PID 1 would fill a disk.
	_, err = d.engine.TaskService().Create(ctx, &tasks.CreateTaskRequest{ContainerID: string(spec.ID), Rootfs: protoMounts(rootfs)})
	if err != nil {
		return engineError(err, "the sandbox was not made")
	}
	if _, err := d.engine.TaskService().Start(ctx, &tasks.StartRequest{ContainerID: string(spec.ID)}); err != nil {
		return engineError(err, "the sandbox did not start")
	}
	started := containers.Container{ID: string(spec.ID), Labels: map[string]string{labelStarted: "1"}}
	if _, err := d.engine.ContainerService().Update(ctx, started, "labels."+labelStarted); err != nil {
		return engineError(err, "the sandbox did not start")
	}
	return nil
}

// running tells what came of a start.
func (d creation) running(ctx context.Context, id sandbox.ID) (sandbox.Instance, error) {
	there, err := d.Inspect(ctx, id)
	if err != nil {
		return sandbox.Instance{}, err
	}
	if there.State == sandbox.Lost {
		return sandbox.Instance{}, sandbox.Wrap(sandbox.Internal, fmt.Errorf("exit code %d", there.ExitCode), "the daemon of the sandbox ended at once")
	}
	return there, nil
}

// discard takes away a sandbox that failed to start, also when its caller has gone.
func (d creation) discard(ctx context.Context, id sandbox.ID) {
	if err := removal(d).remove(context.WithoutCancel(ctx), id); err != nil {
		d.log.Error("a sandbox that failed to start is not wholly removed", "sandbox", id, "error", err)
	}
}

func protoMounts(mounts []mount.Mount) []*types.Mount {
	out := make([]*types.Mount, 0, len(mounts))
	for _, m := range mounts {
		out = append(out, &types.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: m.Options})
	}
	return out
}
