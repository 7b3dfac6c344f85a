package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// volumeClaims are the volumes of threads.
type volumeClaims struct{ *Driver }

// Files of threads on volumes. Each user has one PersistentVolumeClaim, each thread a folder in it, which is all of the
// volume that its pods see: that, and not the owners of files, keeps the threads of a user apart. The kubelet makes the folder, the
// sidecar what is in it.

// VolumeOptions say what claims ask for.
type VolumeOptions struct {
	StorageClass string // "" = the cluster's default
	Size         string // of each, a quantity as in "20Gi"; "" = 20Gi
	// AccessMode is ReadWriteOnce or ReadWriteMany; "" = ReadWriteOnce. With the first all pods of a user run on one node.
	AccessMode corev1.PersistentVolumeAccessMode
}

const (
	volumeComponent = "workspaces"
	// volumeLabel is on claims and on the pods that have them: the name of the claim.
	volumeLabel = "skerry.io/volume"
	// annotationUser says in words whose a claim is.
	annotationUser = "skerry.io/user"
	volumeSize     = "20Gi"
	// volumeGroup is the group of all pods with volumes: the kubelet changes a volume's group to it once, and not to each thread's in turn,
	// file by file. It is below the uids of workspaces.
	volumeGroup = int64(999_999)
	// fileSeconds is how long a pod of a volume's files alone may be, whatever becomes of the server that made it.
	fileSeconds = int64(600)
)

func (v *VolumeOptions) complete() error {
	if v.Size == "" {
		v.Size = volumeSize
	}
	if q, err := resource.ParseQuantity(v.Size); err != nil || q.Sign() <= 0 {
		return fmt.Errorf("volumes of the size %.40q: want a quantity as in 20Gi", v.Size)
	}
	switch v.AccessMode {
	case "":
		v.AccessMode = corev1.ReadWriteOnce
	case corev1.ReadWriteOnce, corev1.ReadWriteMany:
	default:
		return fmt.Errorf("volumes with the access mode %.40q: want ReadWriteOnce or ReadWriteMany", v.AccessMode)
	}
	return nil
}

// claimName is that of a user's claim. Names of tenants and users have no NUL.
func claimName(v *sandbox.Volume) string { return "skerry-user-" + hashed(v.Tenant+"\x00"+v.User) }

// volumeFolder is the folder of a thread on its user's volume.
func volumeFolder(v *sandbox.Volume) string { return hashed(v.Thread) }

// claim sees to it that a user's claim is there. Who is first makes it.
func (d volumeClaims) claim(ctx context.Context, v *sandbox.Volume) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	there, err := d.findClaim(ctx, v)
	if there || err != nil {
		return err
	}
	o, name := d.o.Volumes, claimName(v)
	made := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: d.o.Namespace, Annotations: map[string]string{annotationUser: v.Tenant + "/" + v.User},
			Labels: map[string]string{managerLabel: manager, ComponentLabel: volumeComponent, volumeLabel: name},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{o.AccessMode},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(o.Size)}},
		},
	}
	if o.StorageClass != "" {
		made.Spec.StorageClassName = &o.StorageClass
	}
	_, err = d.client.Core.PersistentVolumeClaims(d.o.Namespace).Create(ctx, made, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return apiError(err, "the user's volume was not made", "create persistentvolumeclaims")
	}
	return nil
}

func (d volumeClaims) findClaim(ctx context.Context, v *sandbox.Volume) (there bool, err error) {
	found, err := d.client.Core.PersistentVolumeClaims(d.o.Namespace).Get(ctx, claimName(v), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, apiError(err, "the cluster does not tell of the user's volume", "get persistentvolumeclaims")
	case found.Labels[volumeLabel] != claimName(v):
		return false, sandbox.Errorf(sandbox.Conflict, "the name of the user's volume, %s, is taken by another claim", claimName(v))
	case found.DeletionTimestamp != nil:
		return false, sandbox.Errorf(sandbox.Unavailable, "the user's volume, %s, is being deleted", claimName(v))
	}
	return true, nil
}

// onVolume has a pod find its thread's files on a volume.
func (o Options) onVolume(p *corev1.Pod, spec sandbox.Spec) {
	v, group := spec.Volume, volumeGroup
	p.Labels[volumeLabel] = claimName(v)
	p.Spec.SecurityContext.FSGroup = &group
	p.Spec.Affinity = o.oneNode(v)
	for i := range p.Spec.Volumes {
		if p.Spec.Volumes[i].Name == volumeUserData {
			p.Spec.Volumes[i].VolumeSource = corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(v)},
			}
		}
	}
	bridge := p.Spec.InitContainers[0].Command
	for i, arg := range bridge {
		if strings.HasPrefix(arg, "--mount="+sandbox.UserDataDir+"=") {
			bridge[i] = strings.TrimSuffix(arg, ":rw") + ":kept"
		}
	}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			for j := range list[i].VolumeMounts {
				if m := &list[i].VolumeMounts[j]; m.Name == volumeUserData {
					m.SubPath = path.Join(volumeFolder(v), m.SubPath)
				}
			}
		}
	}
	if v.Bare {
		o.bare(p)
	}
}

// oneNode: a volume that one node can have draws all pods of its user there.
func (o Options) oneNode(v *sandbox.Volume) *corev1.Affinity {
	if o.Volumes.AccessMode != corev1.ReadWriteOnce {
		return nil
	}
	return &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{volumeLabel: claimName(v)}},
		TopologyKey:   corev1.LabelHostname,
	}}}}
}

// bare leaves of a pod what copies its thread's files: the sidecar alone, in the sandbox's place.
func (o Options) bare(p *corev1.Pod) {
	c := p.Spec.InitContainers[0]
	c.Name, c.RestartPolicy, c.StartupProbe, c.Lifecycle = containerSandbox, nil, nil, nil
	c.Command = slices.DeleteFunc(c.Command, func(arg string) bool {
		return arg == "--anchor" || strings.HasPrefix(arg, "--daemon=") || strings.HasPrefix(arg, "--mount=") && !strings.HasPrefix(arg, "--mount="+sandbox.UserDataDir+"=")
	})
	kept := map[string]bool{volumeCertificate: true, volumeRun: true, volumeUserData: true}
	c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return !kept[m.Name] })
	p.Spec.Volumes = slices.DeleteFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return !kept[v.Name] })
	p.Spec.InitContainers, p.Spec.Containers = nil, []corev1.Container{c}
	p.Spec.ActiveDeadlineSeconds = new(fileSeconds)
}

// listenPause is between two tries to reach a pod that runs, and does not listen yet; listenTime bounds them.
const (
	listenPause = 50 * time.Millisecond
	listenTime  = 20 * time.Second
)

// attachBare attaches what has no probe that would say when it listens.
func (d volumeClaims) attachBare(ctx context.Context, a driver.Attachment) error {
	ctx, cancel := context.WithTimeout(ctx, listenTime)
	defer cancel()
	for {
		err := d.Attach(ctx, a)
		if !errors.Is(err, sandbox.Unavailable) {
			return err
		}
		select {
		case <-time.After(listenPause):
		case <-ctx.Done():
			return err
		}
	}
}

// RemoveFolder implements driver.Volumes: by a pod that sees all of the volume, and runs the sidecar's program once.
func (d *Driver) RemoveFolder(ctx context.Context, spec sandbox.Spec) error {
	if spec.Volume == nil {
		return sandbox.Errorf(sandbox.Invalid, "no folder of a volume is named")
	}
	if there, err := (volumeClaims{d}).findClaim(ctx, spec.Volume); err != nil || !there {
		return err
	}
	v := *spec.Volume
	v.Bare, v.Ahead = true, true
	spec.Volume = &v
	pod, err := creation{d}.describe(ctx, spec)
	if err != nil {
		return err
	}
	c := &pod.Spec.Containers[0]
	c.Command = []string{bridgeProgram, "--remove=" + bridgeFolder(volumeUserData) + "/" + volumeFolder(&v)}
	for i := range c.VolumeMounts {
		if c.VolumeMounts[i].Name == volumeUserData {
			c.VolumeMounts[i].SubPath = ""
		}
	}
	unlock, err := d.locks.Lock(ctx, spec.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if err := d.pods.synced(ctx); err != nil {
		return err
	}
	made, err := creation{d}.make(ctx, spec.ID, pod)
	if err == nil && !made {
		err = taken(spec.ID)
	}
	if err != nil {
		return err
	}
	err = volumeClaims{d}.awaitEnd(ctx, spec.ID)
	return errors.Join(err, d.remove(context.WithoutCancel(ctx), spec.ID))
}

// awaitEnd waits until the only container of a pod has ended well.
func (d volumeClaims) awaitEnd(ctx context.Context, id sandbox.ID) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d.o.StartTimeout, errSlow)
	defer cancel()
	began := time.Now()
	err := d.pods.await(ctx, id, d.o.ScheduleTimeout, func(p *corev1.Pod) (bool, error) {
		if p == nil {
			return false, nil
		}
		if c := containerStatus(p.Status.ContainerStatuses, containerSandbox); c != nil && c.State.Terminated != nil && c.State.Terminated.ExitCode == 0 {
			return true, nil
		}
		if err := problem(p); err != nil {
			return false, sandbox.Wrap(sandbox.Unavailable, err, "the folder on the user's volume was not removed")
		}
		return false, noRoom(p, began, d.o.ScheduleTimeout)
	})
	if err == nil || sandbox.KindOf(err) != sandbox.Internal || errors.As(err, new(*sandbox.Error)) {
		return err
	}
	return sandbox.Wrap(sandbox.Timeout, err, "the folder on the user's volume was not removed in time")
}

// noRoom says why a pod has no node after a time; nil: it has, or may still get one.
func noRoom(p *corev1.Pod, began time.Time, patience time.Duration) error {
	words := unscheduled(p)
	switch {
	case words == "" || time.Since(began) < patience:
		return nil
	case p.Labels[volumeLabel] == "":
		return sandbox.Errorf(sandbox.CapacityExceeded, "no node of the cluster has room for the sandbox: %s", words)
	}
	return sandbox.Errorf(sandbox.CapacityExceeded, "no node of the cluster has room for the sandbox beside the volume of its user, whose sandboxes all run "+
		"on one node unless volumes are ReadWriteMany: %s", words)
}
