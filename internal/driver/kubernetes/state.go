package kubernetes

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Names of the containers of a pod.
const (
	containerSandbox = "sandbox"
	containerBridge  = "bridge"
)

// instance tells what is known of a sandbox from its pod.
func instance(p *corev1.Pod) sandbox.Instance {
	out := sandbox.Instance{
		ID:        idOf(p),
		Labels:    specLabels(p),
		CreatedAt: p.CreationTimestamp.UTC(),
	}
	if r, err := recall(p); err == nil { // one of ours has it; what is broken there is told by the caller that needs it
		out.Runtime = r.Runtime
	}
	out.State, out.OOMKilled, out.ExitCode = state(p)
	return out
}

// instance tells what this server knows, too: a sandbox that spoke through the sidecar runs, though the kubelet, which looks once a
// second, has not seen it yet.
func (d *Driver) instance(p *corev1.Pod) sandbox.Instance {
	out := instance(p)
	if out.State == sandbox.Starting && d.pods.wasHeard(p) {
		out.State = sandbox.Running
	}
	return out
}

// sidecarRuns: a sandbox runs after its sidecar only.
func sidecarRuns(p *corev1.Pod) bool {
	for _, c := range []*corev1.ContainerStatus{
		containerStatus(p.Status.InitContainerStatuses, containerBridge), containerStatus(p.Status.ContainerStatuses, containerSandbox),
	} {
		if c != nil && c.State.Running != nil {
			return true
		}
	}
	return false
}

// killedBySIGKILL is the exit code of a process that was killed.
const killedBySIGKILL = 137

// state reads a pod's status. A pod that is being deleted is lost: that is never taken back.
func state(p *corev1.Pod) (s sandbox.State, oom bool, exit int) {
	own := containerStatus(p.Status.ContainerStatuses, containerSandbox)
	var ended *corev1.ContainerStateTerminated
	if own != nil {
		ended = own.State.Terminated
	}
	switch {
	case ended != nil:
		return sandbox.Lost, ended.Reason == "OOMKilled" || outOfMemory(p), int(ended.ExitCode)
	case p.DeletionTimestamp != nil, p.Status.Phase == corev1.PodFailed, p.Status.Phase == corev1.PodSucceeded:
		return sandbox.Lost, outOfMemory(p), killedBySIGKILL
	case own != nil && own.State.Running != nil:
		return sandbox.Running, false, 0
	}
	return sandbox.Starting, false, 0
}

// outOfMemory reports whether a pod was evicted because its node, or a volume in memory, had none left. It is told in
// words only.
func outOfMemory(p *corev1.Pod) bool {
	return p.Status.Reason == "Evicted" && strings.Contains(p.Status.Message, "resource: memory")
}

func containerStatus(list []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

// Inspect implements driver.Driver.
func (d *Driver) Inspect(ctx context.Context, id sandbox.ID) (sandbox.Instance, error) {
	p, err := d.lookup.pod(ctx, id)
	if err != nil {
		return sandbox.Instance{}, err
	}
	if p == nil || !isMine(p) {
		return sandbox.Instance{}, notHere(id)
	}
	inst := d.instance(p)
	d.pods.learnEnd(p)
	return inst, nil
}

// List implements driver.Driver.
func (d *Driver) List(ctx context.Context, want map[string]string) ([]sandbox.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	selector := selectors(want)
	selector[ComponentLabel], selector[managerLabel] = Component, manager
	got, err := d.client.Core.Pods(d.o.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(selector).String()})
	if err != nil {
		return nil, apiError(err, "the cluster does not tell what runs", "list pods")
	}
	there := make(map[sandbox.ID]bool, len(got.Items))
	for i := range got.Items {
		there[idOf(&got.Items[i])] = true
	}
	starting, err := warmPool{d}.claimsWithout(ctx, selector, there)
	if err != nil {
		return nil, err
	}
	all := append(got.Items, starting...)
	out := make([]sandbox.Instance, 0, len(all))
	for i := range all {
		p := &all[i]
		if !isMine(p) || hardening.CheckID(idOf(p)) != nil {
			continue
		}
		// Hashes may meet, the labels themselves do not.
		if one := d.instance(p); driver.HasLabels(one.Labels, want) {
			out = append(out, one)
		}
	}
	return out, nil
}
