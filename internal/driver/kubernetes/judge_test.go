package kubernetes

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/cache"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar"
)

// TestOpenNetwork: what counts is what all policies together let through.
func TestOpenNetwork(t *testing.T) {
	tcp, udp, end := corev1.ProtocolTCP, corev1.ProtocolUDP, int32(9000)
	both := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	server := []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}
	port := func(n int32) *intstr.IntOrString { return new(intstr.FromInt32(n)) }
	in := func(from []networkingv1.NetworkPolicyPeer, ports ...networkingv1.NetworkPolicyPort) networkingv1.NetworkPolicySpec {
		return networkingv1.NetworkPolicySpec{PolicyTypes: both, Ingress: []networkingv1.NetworkPolicyIngressRule{{From: from, Ports: ports}}}
	}
	right := in(server, networkingv1.NetworkPolicyPort{Protocol: &tcp, Port: port(sidecar.Port)})
	for name, c := range map[string]struct {
		specs []networkingv1.NetworkPolicySpec
		want  string
	}{
		"none":               {nil, "no NetworkPolicy"},
		"of the chart":       {[]networkingv1.NetworkPolicySpec{right}, ""},
		"two halves":         {[]networkingv1.NetworkPolicySpec{{PolicyTypes: both[:1]}, {PolicyTypes: both[1:]}}, ""},
		"for others":         {[]networkingv1.NetworkPolicySpec{{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, PolicyTypes: both}}, "no NetworkPolicy"},
		"in only":            {[]networkingv1.NetworkPolicySpec{{PolicyTypes: both[:1]}}, "no NetworkPolicy"},
		"types by default":   {[]networkingv1.NetworkPolicySpec{{}}, "no NetworkPolicy"},
		"another lets out":   {[]networkingv1.NetworkPolicySpec{right, {PolicyTypes: both[1:], Egress: []networkingv1.NetworkPolicyEgressRule{{}}}}, "lets sandboxes out"},
		"another lets in":    {[]networkingv1.NetworkPolicySpec{right, in(nil)}, "lets more into"},
		"from anywhere":      {[]networkingv1.NetworkPolicySpec{in(nil, networkingv1.NetworkPolicyPort{Port: port(sidecar.Port)})}, "lets more into"},
		"another port":       {[]networkingv1.NetworkPolicySpec{in(server, networkingv1.NetworkPolicyPort{Port: port(22)})}, "lets more into"},
		"a range of ports":   {[]networkingv1.NetworkPolicySpec{in(server, networkingv1.NetworkPolicyPort{Port: port(sidecar.Port), EndPort: &end})}, "lets more into"},
		"the port by UDP":    {[]networkingv1.NetworkPolicySpec{in(server, networkingv1.NetworkPolicyPort{Protocol: &udp, Port: port(sidecar.Port)})}, "lets more into"},
		"all ports of peers": {[]networkingv1.NetworkPolicySpec{in(server)}, "lets more into"},
	} {
		var list []networkingv1.NetworkPolicy
		for _, spec := range c.specs {
			list = append(list, networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: spec})
		}
		got := openIn(list, testOptions(t).podLabels(nil), "sandboxes")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestErrors: what the API server refuses has a kind, and says what is missing.
func TestErrors(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for words, c := range map[string]struct {
		err  error
		want sandbox.Kind
	}{
		"create pods": {apierrors.NewForbidden(pods, "x", errors.New(`User "a" cannot create resource "pods"`)), sandbox.Unavailable},
		"quota":       {apierrors.NewForbidden(pods, "x", errors.New("exceeded quota: q, requested: pods=1")), sandbox.CapacityExceeded},
		"Pod Security": {
			apierrors.NewForbidden(pods, "x", errors.New(`violates PodSecurity "restricted:latest": seccompProfile`)), sandbox.NotSupported,
		},
		"webhook":           {apierrors.NewForbidden(pods, "x", errors.New(`admission webhook "w" denied the request`)), sandbox.NotSupported},
		"account":           {apierrors.NewUnauthorized("no"), sandbox.Unavailable},
		"cannot be reached": {errors.New("connection refused"), sandbox.Unavailable},
		"in time":           {context.DeadlineExceeded, sandbox.Timeout},
		"description":       {apierrors.NewBadRequest("no"), sandbox.Invalid},
	} {
		err := apiError(c.err, "the sandbox was not made", "create pods")
		var e *sandbox.Error
		if !errors.As(err, &e) || e.Kind != c.want || !strings.Contains(e.Detail, words) {
			t.Errorf("%v: %v (%s), want %s and %q", c.err, err, sandbox.KindOf(err), c.want, words)
		}
	}
}

func waiting(container, reason, message string) *corev1.Pod {
	status := corev1.ContainerStatus{Name: container, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
	if container == containerSandbox {
		return &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{status}}}
	}
	return &corev1.Pod{Status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{status}}}
}

// TestProblems: a pod that cannot start fails at once, and the driver waits for a pod that may start.
func TestProblems(t *testing.T) {
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want sandbox.Kind
	}{
		"starts":            {waiting(containerSandbox, "PodInitializing", ""), ""},
		"no such image":     {waiting(containerSandbox, "ErrImagePull", "not found"), sandbox.NotFound},
		"a pull that fails": {waiting(containerSandbox, "ErrImagePull", "timeout"), ""},
		"again":             {waiting(containerSandbox, "ImagePullBackOff", "timeout"), sandbox.NotFound},
		"never pulled":      {waiting(containerSandbox, "ErrImageNeverPull", ""), sandbox.NotFound},
		"no sidecar":        {waiting(containerBridge, "ErrImageNeverPull", ""), sandbox.Unavailable},
		"no program":        {waiting(containerSandbox, "CreateContainerError", "/var/lib"), sandbox.Internal},
		"evicted":           {&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}}, sandbox.Unavailable},
	} {
		if err := problem(c.pod); sandbox.KindOf(err) != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func livePod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "skerry-0123456789abcdef", Labels: map[string]string{managerLabel: manager, ComponentLabel: Component},
			Annotations: map[string]string{annotationSpec: `{"runtime":"runc"}`},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			Name: containerSandbox, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}},
	}
}

// TestEnds: each way in which a pod ends is told once, with its reason, also when its deletion was noticed late.
func TestEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end func(*pods, *corev1.Pod)
		oom bool
	}{
		"out of memory": {func(w *pods, p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}}
			w.seen(p, false)
			w.seen(p, false)
			w.deleted(p)
		}, true},
		"evicted": {func(w *pods, p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: memory."}
			w.seen(p, false)
		}, true},
		"being deleted": {func(w *pods, p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{}; w.seen(p, false) }, false},
		"deleted":       {func(w *pods, p *corev1.Pod) { w.deleted(p) }, false},
		"seen by Inspect, before a late event of when it ran": {func(w *pods, p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}
			w.learnEnd(p)
			w.seen(livePod(), false)
			if now := w.now(idOf(p)); now == nil || !hasEnded(now) {
				t.Errorf("it runs again: %+v", now)
			}
			w.seen(p, false)
		}, false},
		"noticed late": {func(w *pods, p *corev1.Pod) { w.deleted(cache.DeletedFinalStateUnknown{Obj: p}) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			gone := 0
			w := &pods{
				log: slog.New(slog.DiscardHandler), gone: func(sandbox.ID) { gone++ },
				known: map[sandbox.ID]*corev1.Pod{}, ended: map[sandbox.ID]bool{},
				waiters: map[sandbox.ID]map[chan struct{}]bool{},
			}
			var running sync.WaitGroup
			closing, stop := context.WithCancel(t.Context())
			told := w.events.Watch(closing, closing, &running)
			const last = "last"
			taken := func() (got []driver.Event) {
				w.events.Put(driver.Event{ID: last})
				for e := range told {
					if e.ID == last {
						break
					}
					got = append(got, e)
				}
				return got
			}
			defer running.Wait()
			defer stop()
			w.seen(livePod(), true)
			if got := taken(); len(got) != 0 {
				t.Fatalf("a pod that runs is told as %+v", got)
			}
			c.end(w, livePod())
			if got := taken(); len(got) != 1 || got[0].State != sandbox.Lost || got[0].OOM != c.oom || gone == 0 {
				t.Errorf("told: %+v, %d ends; want one, out of memory: %v", got, gone, c.oom)
			}
		})
	}
}

// TestAwait: who waits sees each change, and a wait ends with its context.
func TestAwait(t *testing.T) {
	w := &pods{gone: func(sandbox.ID) {}, known: map[sandbox.ID]*corev1.Pod{}, ended: map[sandbox.ID]bool{}, waiters: map[sandbox.ID]map[chan struct{}]bool{}}
	const id = "skerry-0123456789abcdef"
	first := make(chan struct{})
	go func() { <-first; w.seen(livePod(), false) }()
	looks := 0
	err := w.await(t.Context(), id, 0, func(p *corev1.Pod) (bool, error) {
		if looks++; looks == 1 {
			close(first)
		}
		return p != nil, nil
	})
	if err != nil || looks < 2 {
		t.Errorf("%d looks, %v", looks, err)
	}
	ended, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := w.await(ended, id, 0, func(*corev1.Pod) (bool, error) { return false, nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a wait that nothing ends: %v", err)
	}
	if len(w.waiters) != 0 {
		t.Errorf("%d wait still", len(w.waiters))
	}
}
