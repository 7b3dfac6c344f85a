package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	kubetesting "k8s.io/client-go/testing"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/tunnels"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar"
)

// warmPod is the name of the pod that the pool of these tests has.
const warmPod = "office-x7k2p"

// agentSandbox plays the controller of agent-sandbox: a claim gets the pod that the pool's SandboxTemplate makes, changed by
// change, and its deletion takes the pod away.
func (p *pretended) agentSandbox(spec sandbox.Spec, change func(*corev1.Pod)) {
	p.Helper()
	objects, err := p.d.o.Pool(spec.ClaimPool, spec, 2)
	if err != nil {
		p.Fatal(err)
	}
	pod := podOf(p, objects[1])
	if change != nil {
		change(pod)
	}
	pods := p.api.Core.Pods(p.d.o.Namespace)
	p.objects.PrependReactor("create", "sandboxclaims", func(a kubetesting.Action) (bool, runtime.Object, error) {
		if _, err := pods.Create(context.Background(), pod, metav1.CreateOptions{}); err != nil {
			p.Error(err)
		}
		return false, nil, nil
	})
	// The claim gets its pod once the driver watches: the test would not see the watch otherwise when the list is enough.
	p.objects.PrependWatchReactor("sandboxclaims", func(a kubetesting.Action) (bool, watch.Interface, error) {
		claims := p.objects.Tracker()
		w, err := claims.Watch(a.GetResource(), a.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		claim, err := claims.Get(a.GetResource(), a.GetNamespace(), string(spec.ID))
		if err != nil {
			return true, w, nil // not claimed, or released meanwhile
		}
		object := claim.(*unstructured.Unstructured).Object
		if _, said := object["status"]; said { // by claimSays
			return true, w, nil
		}
		object["status"] = status("True", "DependenciesReady", pod.Name)
		return true, w, claims.Update(a.GetResource(), claim, a.GetNamespace())
	})
	p.objects.PrependReactor("delete", "sandboxclaims", func(kubetesting.Action) (bool, runtime.Object, error) {
		go func() { // the cluster collects what has no owner, later
			if err := pods.Delete(context.Background(), pod.Name, metav1.DeleteOptions{}); err != nil {
				p.Error(err)
			}
		}()
		return false, nil, nil
	})
}

func status(ready, reason, sandboxName string) map[string]any {
	return map[string]any{
		"sandbox":    map[string]any{"name": sandboxName},
		"conditions": []any{map[string]any{"type": "Ready", "status": ready, "reason": reason, "message": "of the test", "lastTransitionTime": "2026-01-01T00:00:00Z"}},
	}
}

// podOf makes the pod of a SandboxTemplate, as agent-sandbox and the API server do.
func podOf(t testing.TB, template map[string]any) *corev1.Pod {
	t.Helper()
	described, _, err := unstructured.NestedMap(template, "spec", "podTemplate")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(described)
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	if err := json.Unmarshal(text, &pod); err != nil {
		t.Fatal(err)
	}
	pod.Name = warmPod
	pod.Labels = maps.Clone(pod.Labels)
	pod.Labels["agents.x-k8s.io/sandbox-name-hash"] = "0123abcd"
	pod.Annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] = "true"
	pod.Spec.NodeName, pod.Spec.ServiceAccountName, pod.Spec.DeprecatedServiceAccount = "node", "default", "default"
	pod.Spec.SchedulerName, pod.Spec.Priority, pod.Spec.PreemptionPolicy = "default-scheduler", new(int32), new(corev1.PreemptLowerPriority)
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			list[i].TerminationMessagePath, list[i].TerminationMessagePolicy = "/dev/termination-log", corev1.TerminationMessageReadFile
			for j := range list[i].Ports {
				list[i].Ports[j].Protocol = corev1.ProtocolTCP
			}
			if probe := list[i].StartupProbe; probe != nil {
				probe.SuccessThreshold = 1
			}
		}
	}
	return &pod
}

func claimSpec(t testing.TB) sandbox.Spec {
	spec := testSpec(t)
	spec.ClaimPool = "office"
	return spec
}

// pretendClaims is an API server that has agent-sandbox.
func pretendClaims(t *testing.T) *pretended {
	p := pretend(t)
	p.d.o.Claims, p.d.o.StartTimeout = true, 10*time.Second
	return p
}

// TestClaim: a sandbox that comes from a warm pool lives as any other does, under its own id.
func TestClaim(t *testing.T) {
	p, spec := pretendClaims(t), claimSpec(t)
	p.agentSandbox(spec, nil)
	dialled := make(chan sidecar.Options, 1)
	dial := p.d.dial
	p.d.dial = func(ctx context.Context, so sidecar.Options) (tunnels.Tunnel, error) {
		dialled <- so
		return dial(ctx, so)
	}
	made, err := p.d.Create(t.Context(), spec)
	if err != nil || made.State != sandbox.Running || made.ID != spec.ID {
		t.Fatalf("%+v, %v", made, err)
	}
	if so := <-dialled; so.ID != spec.ID || so.Certificate != poolID("office") || so.UID != spec.UID {
		t.Errorf("dialled %s with the certificate of %s for uid %d", so.ID, so.Certificate, so.UID)
	}
	again, err := p.d.Create(t.Context(), spec)
	if err != nil || again.ID != spec.ID || again.State != sandbox.Running {
		t.Errorf("again: %+v, %v", again, err)
	}
	if list, err := p.d.List(t.Context(), spec.Labels); err != nil || len(list) != 1 || list[0].ID != spec.ID || !maps.Equal(list[0].Labels, spec.Labels) {
		t.Errorf("listed %+v, %v", list, err)
	}
	p.removeTold(spec.ID)
	if left := p.pods(); len(left) > 0 {
		t.Errorf("left over: %v", left[0].Name)
	}
}

// TestClaimRefused: a pod of another shape, and each way in which a pool has none, is one clear error, and nothing is left.
func TestClaimRefused(t *testing.T) {
	for name, c := range map[string]struct {
		pod     func(*corev1.Pod)
		cluster func(*pretended)
		want    sandbox.Kind
		words   string
	}{
		"no sidecar": {pod: func(p *corev1.Pod) { p.Spec.InitContainers = nil }, want: sandbox.NotSupported, words: "spec.initContainers has 0 entries, want 1"},
		"a container more": {pod: func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "istio-proxy"})
		}, want: sandbox.NotSupported, words: "spec.containers has 2 entries, want 1"},
		"no label": {pod: func(p *corev1.Pod) { delete(p.Labels, ComponentLabel) }, want: sandbox.NotSupported, words: "metadata.labels[app.kubernetes.io/component] is missing"},
		"another image": {pod: func(p *corev1.Pod) { p.Spec.Containers[0].Image = "busybox" }, want: sandbox.NotSupported,
			words: `spec.containers[sandbox].image is "busybox", want "skerry/base:1"`},
		"not sealed": {pod: func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem = nil }, want: sandbox.NotSupported,
			words: "spec.containers[sandbox].securityContext.readOnlyRootFilesystem is missing, want true"},
		"the host's network": {pod: func(p *corev1.Pod) { p.Spec.HostNetwork = true }, want: sandbox.NotSupported, words: "spec.hostNetwork is true, want none"},
		"a variable":         {pod: func(p *corev1.Pod) { p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A"}} }, want: sandbox.NotSupported, words: "spec.containers[sandbox].env is"},
		"another filter": {pod: func(p *corev1.Pod) { p.Spec.Containers[0].Command[2] = "{}" }, want: sandbox.NotSupported,
			words: "spec.containers[sandbox].command[2] is"},
		"of another sandbox": {pod: func(p *corev1.Pod) { p.Annotations[annotationID] = "skerry-00000000000000ff" }, want: sandbox.Conflict, words: "another sandbox"},
		"a policy of the pool": {cluster: func(p *pretended) {
			p.d.o.Unpoliced = false
			p.policies(networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}},
				networkingv1.NetworkPolicySpec{
					PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"agents.x-k8s.io/sandbox-name-hash": "0123abcd"}},
					PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}, Egress: []networkingv1.NetworkPolicyEgressRule{{}},
				})
		}, want: sandbox.NotSupported, words: "lets sandboxes out"},
		"no such pool": {cluster: func(p *pretended) { p.claimSays("False", "WarmPoolNotFound", "") }, want: sandbox.NotFound, words: "no SandboxWarmPool office"},
		"an empty pool": {cluster: func(p *pretended) {
			p.d.o.StartTimeout = 100 * time.Millisecond
			p.claimSays("False", "SandboxNotReady", "")
		},
			want: sandbox.Timeout, words: "had no sandbox in time (SandboxNotReady: of the test)"},
		"no CRDs": {cluster: func(p *pretended) {
			p.objects.PrependReactor("create", "sandboxclaims", func(kubetesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewNotFound(claimResource.GroupResource(), "")
			})
		}, want: sandbox.Unavailable, words: "install agent-sandbox"},
		"no rule": {cluster: func(p *pretended) {
			p.objects.PrependReactor("create", "sandboxclaims", func(kubetesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(claimResource.GroupResource(), "x", errors.New(`User "a" cannot create resource "sandboxclaims"`))
			})
		}, want: sandbox.Unavailable, words: "create sandboxclaims"},
	} {
		t.Run(name, func(t *testing.T) {
			p, spec := pretendClaims(t), claimSpec(t)
			p.agentSandbox(spec, c.pod)
			if c.cluster != nil {
				c.cluster(p)
			}
			_, err := p.d.Create(t.Context(), spec)
			var ours *sandbox.Error
			if !errors.As(err, &ours) || ours.Kind != c.want || !strings.Contains(ours.Detail, c.words) {
				t.Errorf("%v (%s), want %s with %q", err, sandbox.KindOf(err), c.want, c.words)
			}
			if list, err := p.d.claims.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
				t.Errorf("claims are left: %v, %v", list, err)
			}
		})
	}
}

// policies makes NetworkPolicies of these names.
func (p *pretended) policies(specs ...networkingv1.NetworkPolicySpec) {
	p.Helper()
	for i, spec := range specs {
		one := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: string(rune('a' + i))}, Spec: spec}
		if _, err := p.api.Networking.NetworkPolicies(p.d.o.Namespace).Create(p.Context(), one, metav1.CreateOptions{}); err != nil {
			p.Fatal(err)
		}
	}
}

// claimSays makes claims have a status, and no pod.
func (p *pretended) claimSays(ready, reason, sandboxName string) {
	p.objects.ReactionChain = p.objects.ReactionChain[len(p.objects.ReactionChain)-1:] // no goroutine plays agent-sandbox
	p.objects.PrependReactor("create", "sandboxclaims", func(a kubetesting.Action) (bool, runtime.Object, error) {
		a.(kubetesting.CreateAction).GetObject().(*unstructured.Unstructured).Object["status"] = status(ready, reason, sandboxName)
		return false, nil, nil
	})
}

// TestClaimWithoutPod: a claim whose server ended before it had a pod is listed as a sandbox that starts, and can be removed.
func TestClaimWithoutPod(t *testing.T) {
	p, spec := pretendClaims(t), claimSpec(t)
	annotations, err := ownAnnotations(spec)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.d.claims.Create(t.Context(), p.d.o.sandboxClaim(spec, annotations), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	list, err := p.d.List(t.Context(), spec.Labels)
	if err != nil || len(list) != 1 || list[0].ID != spec.ID || list[0].State != sandbox.Starting || list[0].Runtime != "runc" {
		t.Fatalf("listed %+v, %v", list, err)
	}
	if now, err := p.d.Inspect(t.Context(), spec.ID); err != nil || now.State != sandbox.Starting {
		t.Errorf("inspected %+v, %v", now, err)
	}
	if err := p.d.Remove(t.Context(), spec.ID); err != nil {
		t.Fatal(err)
	}
	if list, err := p.d.List(t.Context(), nil); err != nil || len(list) != 0 {
		t.Errorf("listed %+v, %v", list, err)
	}
}

// TestNewPodIsNobodys: the pod that agent-sandbox makes in the place of a lost one is not taken for the sandbox.
func TestNewPodIsNobodys(t *testing.T) {
	p, spec := pretendClaims(t), claimSpec(t)
	p.agentSandbox(spec, nil)
	if _, err := p.d.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	events, err := p.d.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pods := p.api.Core.Pods(p.d.o.Namespace)
	if err := pods.Delete(t.Context(), warmPod, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if e := <-events; e.ID != spec.ID || e.State != sandbox.Lost {
		t.Errorf("told %+v", e)
	}
	objects, err := p.d.o.Pool(spec.ClaimPool, spec, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pods.Create(t.Context(), podOf(t, objects[1]), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if now, err := p.d.Inspect(t.Context(), spec.ID); err != nil || now.State == sandbox.Running {
		t.Errorf("inspected %+v, %v", now, err)
	}
}

// TestClaimsProblem: what is missing is said before the first sandbox.
func TestClaimsProblem(t *testing.T) {
	p := pretendClaims(t)
	if words, err := p.d.ClaimsProblem(t.Context()); err != nil || words != "" {
		t.Errorf("%q, %v", words, err)
	}
	for want, failure := range map[string]error{
		"install agent-sandbox": apierrors.NewNotFound(claimResource.GroupResource(), ""),
		"list sandboxclaims":    apierrors.NewForbidden(claimResource.GroupResource(), "", errors.New("no")),
	} {
		p.objects.PrependReactor("list", "sandboxclaims", func(kubetesting.Action) (bool, runtime.Object, error) { return true, nil, failure })
		if words, err := p.d.ClaimsProblem(t.Context()); err != nil || !strings.Contains(words, want) {
			t.Errorf("%q, %v; want %q", words, err, want)
		}
	}
}
