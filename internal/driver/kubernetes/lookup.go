package kubernetes

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// lookup asks the API server for pods, where what was seen of them is not enough.
type lookup struct {
	o      *Options
	client Clientset
	claims dynamic.ResourceInterface // SandboxClaims of the namespace
	pods   *pods
}

// pod asks the API server for the pod of a sandbox; nil: there is none. A claim without its pod counts as starting.
func (l lookup) pod(ctx context.Context, id sandbox.ID) (*corev1.Pod, error) {
	if err := hardening.CheckID(id); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	name := string(id)
	if seen := l.pods.now(id); seen != nil {
		name = seen.Name
	}
	p, err := l.named(ctx, name)
	if err == nil && p == nil && l.o.Claims {
		return l.claimed(ctx, id)
	}
	return p, err
}

// named asks the API server for a pod by its own name; nil: there is none.
func (l lookup) named(ctx context.Context, name string) (*corev1.Pod, error) {
	p, err := l.client.Core.Pods(l.o.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, apiError(err, "the cluster does not tell the sandbox's state", "get pods")
	}
	return p, nil
}

// claimed returns the pod of the claim with a sandbox's name: the pool's, or the claim itself as a starting pod. nil: there
// is no claim.
func (l lookup) claimed(ctx context.Context, id sandbox.ID) (*corev1.Pod, error) {
	c, err := l.claims.Get(ctx, string(id), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, claimError(err, "the cluster does not tell the sandbox's state", "get")
	}
	if name := boundTo(c); name != "" {
		p, err := l.named(ctx, name)
		if err != nil || p != nil && idOf(p) == id {
			return p, err
		}
	}
	return asPod(c), nil
}

// awaitGone waits until the API server has forgotten a pod, which it does at once unless a controller put a finalizer on it.
func (l lookup) awaitGone(ctx context.Context, id sandbox.ID, was *corev1.Pod) error {
	uid := was.UID
	p, err := l.named(ctx, was.Name)
	if err != nil || p == nil || p.UID != uid {
		return err
	}
	if err := l.pods.synced(ctx); err != nil {
		return err
	}
	err = l.pods.await(ctx, id, 0, func(p *corev1.Pod) (bool, error) { return p == nil || p.UID != uid, nil })
	if err != nil {
		return sandbox.Wrap(sandbox.Timeout, err, "the sandbox was not removed in time")
	}
	return nil
}
