package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// warmPool claims the pods that a SandboxWarmPool keeps ready.
type warmPool struct{ *Driver }

// A sandbox may be a pod of a SandboxWarmPool of kubernetes-sigs/agent-sandbox, in place of one of the driver's own. A
// SandboxClaim with the sandbox's id as its name asks for it; the pod keeps its name from the pool. The claim has
// the labels and annotations of a pod, so that a sandbox is known from the moment it is asked for. The pod gets
// them by a patch, once it is seen to be of our shape. They are put on that pod alone, never into the description that
// agent-sandbox makes pods from: a pod that replaces a lost one is no user's sandbox.

// agent-sandbox stores this version since 0.5.
var (
	claimGroup    = schema.GroupVersion{Group: "extensions.agents.x-k8s.io", Version: "v1beta1"}
	claimResource = claimGroup.WithResource("sandboxclaims")
)

// noClaims is the problem of a cluster that does not know them.
const noClaims = "the cluster has no SandboxClaims of extensions.agents.x-k8s.io/v1beta1: install agent-sandbox 0.5 or newer with its extensions"

// ClaimsProblem says why no sandbox can be claimed from a warm pool of the cluster, or "".
func (d *Driver) ClaimsProblem(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err := d.claims.List(ctx, metav1.ListOptions{Limit: 1})
	switch {
	case apierrors.IsNotFound(err):
		return noClaims, nil
	case apierrors.IsForbidden(err):
		return "this server may not claim sandboxes; it lacks the rule list sandboxclaims (sandboxes.claims in the chart)", nil
	case err != nil:
		return "", apiError(err, "the cluster does not tell its SandboxClaims", "list sandboxclaims")
	}
	return "", nil
}

// claimError is apiError for requests about claims.
func claimError(err error, text, verb string) error {
	if apierrors.IsNotFound(err) {
		return sandbox.Wrap(sandbox.Unavailable, err, "%s: %s", text, noClaims)
	}
	return apiError(err, text, verb+" sandboxclaims")
}

// isClaimed reports whether a pod of ours came from a warm pool.
func isClaimed(p *corev1.Pod) bool {
	r, err := recall(p)
	return err == nil && r.Pool != ""
}

// claimPod takes a pod of a warm pool and makes it the sandbox. made is false when there is a claim of that name already.
func (d warmPool) claimPod(ctx context.Context, spec sandbox.Spec) (made bool, err error) {
	if spec.Volume != nil {
		return false, sandbox.Errorf(sandbox.NotSupported, "a pod of a warm pool has no volume of a user: take kubernetes.claim out of the template, or keep workspaces in pods")
	}
	r, err := hardening.FindRuntime(spec.Runtime)
	if err != nil {
		return false, err
	}
	want, err := d.o.poolPod(spec.ClaimPool, spec, d.o.RuntimeClasses[r.Name])
	if err != nil {
		return false, err
	}
	annotations, err := ownAnnotations(spec)
	if err != nil {
		return false, err
	}
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), changeTimeout)
	defer cancel()
	_, err = d.claims.Create(own, d.o.sandboxClaim(spec, annotations), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	if err != nil {
		if !isAPIStatus(err) || isPassing(err) { // it may have been made all the same
			creation(d).discard(ctx, spec.ID)
		}
		return false, claimError(err, "the sandbox was not claimed", "create")
	}
	if err := d.take(ctx, spec, want, annotations); err != nil {
		creation(d).discard(ctx, spec.ID)
		return false, err
	}
	return true, nil
}

// sandboxClaim describes the claim. It asks for no labels of the pod, which agent-sandbox lets claims set
// within one domain only. It asks for no variables, because agent-sandbox would make a new pod for them.
func (o Options) sandboxClaim(spec sandbox.Spec, annotations map[string]string) *unstructured.Unstructured {
	c := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"warmPoolRef": map[string]any{"name": spec.ClaimPool}},
	}}
	c.SetAPIVersion(claimGroup.String())
	c.SetKind("SandboxClaim")
	c.SetName(string(spec.ID))
	c.SetNamespace(o.Namespace)
	c.SetLabels(o.podLabels(spec.Labels))
	c.SetAnnotations(annotations)
	return c
}

// take waits for the pod of a claim, looks at it, and puts the sandbox's name on it.
func (d warmPool) take(ctx context.Context, spec sandbox.Spec, want *corev1.Pod, annotations map[string]string) error {
	name, err := d.awaitClaimed(ctx, spec)
	if err != nil {
		return err
	}
	ask, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	p, err := d.lookup.named(ask, name)
	if err != nil {
		return err
	}
	if p == nil {
		return sandbox.Errorf(sandbox.Unavailable, "pod %s of the warm pool ended before it was the sandbox", name)
	}
	if p.Annotations[annotationID] != "" {
		return sandbox.Errorf(sandbox.Conflict, "pod %s of the warm pool is that of another sandbox already", p.Name)
	}
	if words := misfit(want, p); words != "" {
		return sandbox.Errorf(sandbox.NotSupported,
			"the pods of SandboxWarmPool %s are not of the shape that this server's sandboxes have: %s; make its SandboxTemplate anew with `skerry templates pool`",
			spec.ClaimPool, words)
	}
	if words, err := findings(d).openNetwork(ask, p.Labels); err != nil || words != "" {
		if err == nil {
			err = sandbox.Errorf(sandbox.NotSupported, "SandboxWarmPool %s: %s", spec.ClaimPool, words)
		}
		return err
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": p.UID, "labels": selectors(spec.Labels), "annotations": annotations,
	}})
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the sandbox cannot be described")
	}
	if _, err := d.client.Core.Pods(d.o.Namespace).Patch(ask, name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		return apiError(err, "the sandbox was not claimed", "patch pods")
	}
	return nil
}

// awaitClaimed returns the name of the pod that a claim got, once it is ready.
func (d warmPool) awaitClaimed(ctx context.Context, spec sandbox.Spec) (pod string, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.o.StartTimeout)
	defer cancel()
	only := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, string(spec.ID)).String()
	}
	follow := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			only(&o)
			return d.claims.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			only(&o)
			return d.claims.Watch(ctx, o)
		},
	}, d.objects)
	last := "it says nothing: does agent-sandbox run?"
	_, err = watchtools.UntilWithSync(ctx, follow, &unstructured.Unstructured{}, nil, func(e watch.Event) (done bool, err error) {
		c, ok := e.Object.(*unstructured.Unstructured)
		if !ok || c.GetName() != string(spec.ID) {
			return false, nil
		}
		if e.Type == watch.Deleted {
			return false, sandbox.Errorf(sandbox.Unavailable, "the claim of the sandbox was deleted while it started")
		}
		name, words, err := claimed(c, spec.ClaimPool)
		if words != "" {
			last = words
		}
		pod = name
		return pod != "", err
	})
	var ours *sandbox.Error
	if err == nil || errors.As(err, &ours) {
		return pod, err
	}
	return "", sandbox.Wrap(sandbox.Timeout, err, "SandboxWarmPool %s had no sandbox in time (%.*s)", spec.ClaimPool, maxWords, last)
}

// claimed reads the status of a claim: the pod's name when it is ready, else why it is not. A pod is called as its Sandbox.
func claimed(c *unstructured.Unstructured, pool string) (pod, words string, err error) {
	conditions, _, _ := unstructured.NestedSlice(c.Object, "status", "conditions") // what is no list is none
	ready := false
	for _, one := range conditions {
		condition, _ := one.(map[string]any)
		if condition["type"] != "Ready" {
			continue
		}
		ready = condition["status"] == "True"
		words = fmt.Sprintf("%v: %v", condition["reason"], condition["message"])
		if reason := condition["reason"]; reason == "WarmPoolNotFound" || reason == "TemplateNotFound" {
			return "", words, sandbox.Errorf(sandbox.NotFound, "there is no SandboxWarmPool %s with a SandboxTemplate in namespace %s (%.*s)", pool, c.GetNamespace(), maxWords, words)
		}
	}
	if !ready {
		return "", words, nil
	}
	return boundTo(c), words, nil
}

// boundTo is the name of the Sandbox, and so of the pod, that a claim has got; "": none yet.
func boundTo(c *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(c.Object, "status", "sandbox", "name") // what is no text is none
	return name
}

// asPod returns a claim as the pod that is not there yet.
func asPod(c *unstructured.Unstructured) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: c.GetName(), Labels: c.GetLabels(), Annotations: c.GetAnnotations(), CreationTimestamp: c.GetCreationTimestamp(), DeletionTimestamp: c.GetDeletionTimestamp(),
	}}
}

// claimsWithout returns the claims that have no pod among those which are there: they start, or their server ended meanwhile.
func (d warmPool) claimsWithout(ctx context.Context, selector labels.Set, there map[sandbox.ID]bool) ([]corev1.Pod, error) {
	if !d.o.Claims {
		return nil, nil
	}
	list, err := d.claims.List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(selector).String()})
	if err != nil {
		return nil, claimError(err, "the cluster does not tell what runs", "list")
	}
	var out []corev1.Pod
	for i := range list.Items {
		if p := asPod(&list.Items[i]); !there[idOf(p)] {
			out = append(out, *p)
		}
	}
	return out, nil
}

// release deletes a claim. The cluster deletes the pod with it.
func (d warmPool) release(ctx context.Context, id sandbox.ID) error {
	at := metav1.DeletePropagationBackground
	err := d.claims.Delete(ctx, string(id), metav1.DeleteOptions{PropagationPolicy: &at})
	if err != nil && !apierrors.IsNotFound(err) {
		return claimError(err, "the sandbox was not removed", "delete")
	}
	return nil
}
