package kubernetes

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	corefake "k8s.io/client-go/kubernetes/typed/core/v1/fake"
	networkingfake "k8s.io/client-go/kubernetes/typed/networking/v1/fake"
	nodefake "k8s.io/client-go/kubernetes/typed/node/v1/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/tunnels"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar"
)

// pretended is an API server in memory, with a goroutine that plays the kubelet.
type pretended struct {
	*testing.T
	d       *Driver
	api     *fakeAPI
	objects *dynamicfake.FakeDynamicClient
	watches chan watch.Interface // the watches that the driver began
	hangUp  func()               // ends the first of them

	mu     sync.Mutex
	status corev1.PodStatus // of each pod that is made
	pushed []string
	owner  int               // of what is pulled, as the last Remount said
	made   func(*corev1.Pod) // is told of each pod; nil: none is

	tries, openFor int // how often a sidecar was asked to leave its pod, and how often it could
}

// fakeAPI is as client-go's fake clientset, with the groups that the driver uses.
type fakeAPI struct {
	kubetesting.Fake
	Clientset
	tracker kubetesting.ObjectTracker
}

func newFakeAPI() *fakeAPI {
	a := &fakeAPI{tracker: kubetesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())}
	a.AddReactor("*", "*", kubetesting.ObjectReaction(a.tracker))
	a.Clientset = Clientset{
		Core:       fakeCore{&corefake.FakeCoreV1{Fake: &a.Fake}},
		Networking: &networkingfake.FakeNetworkingV1{Fake: &a.Fake},
		Node:       &nodefake.FakeNodeV1{Fake: &a.Fake},
	}
	return a
}

// fakeCore says that who watches has to list first: the tracker knows no other way.
type fakeCore struct{ *corefake.FakeCoreV1 }

func (fakeCore) IsWatchListSemanticsUnSupported() bool { return true }

func runningStatus() corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", ContainerStatuses: []corev1.ContainerStatus{{
		Name: containerSandbox, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}}
}

// startingStatus is that of a pod whose sidecar runs, and whose sandbox waits for what reason says.
func startingStatus(reason string) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodPending, PodIP: "10.0.0.1",
		InitContainerStatuses: []corev1.ContainerStatus{{Name: containerBridge, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
		ContainerStatuses:     waiting(containerSandbox, reason, "").Status.ContainerStatuses,
	}
}

func pretend(t *testing.T) *pretended {
	t.Helper()
	p := &pretended{T: t, api: newFakeAPI(), watches: make(chan watch.Interface, 100), status: runningStatus()}
	p.objects = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{claimResource: "SandboxClaimList"})
	p.api.PrependWatchReactor("pods", func(a kubetesting.Action) (bool, watch.Interface, error) {
		w, err := p.api.tracker.Watch(a.GetResource(), a.GetNamespace())
		if err == nil {
			p.watches <- w
		}
		return true, w, err
	})
	// The status comes with the pod: what is told of it later a test says itself.
	p.api.PrependReactor("create", "pods", func(a kubetesting.Action) (bool, runtime.Object, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		made := a.(kubetesting.CreateAction).GetObject().(*corev1.Pod)
		made.UID, made.Status = "uid", *p.status.DeepCopy()
		if p.made != nil {
			p.made(made)
		}
		return false, nil, nil
	})
	o := testOptions(t)
	o.Unpoliced, o.Log, o.ScheduleTimeout = true, slog.New(slog.NewTextHandler(t.Output(), nil)), 20*time.Millisecond
	var err error
	if p.d, err = build(o, p.api.Clientset, p.objects); err != nil {
		t.Fatal(err)
	}
	p.d.dial = func(_ context.Context, so sidecar.Options) (tunnels.Tunnel, error) {
		return &pretendedTunnel{p: p, o: so}, nil
	}
	t.Cleanup(func() {
		if err := p.d.Close(); err != nil {
			t.Error(err)
		}
	})
	p.hangUp = p.watched().Stop // this API server tells no watcher what happens before
	return p
}

// watched waits until the driver watches.
func (p *pretended) watched() watch.Interface {
	p.Helper()
	select {
	case w := <-p.watches:
		return w
	case <-time.After(30 * time.Second):
		p.Fatal("the driver does not watch")
		return nil
	}
}

// fails makes the API server refuse one kind of request.
func (p *pretended) fails(verb, resource string, err error) {
	p.api.PrependReactor(verb, resource, func(kubetesting.Action) (bool, runtime.Object, error) { return true, nil, err })
}

func (p *pretended) pods() []corev1.Pod {
	p.Helper()
	list, err := p.api.Core.Pods(p.d.o.Namespace).List(p.Context(), metav1.ListOptions{})
	if err != nil {
		p.Fatal(err)
	}
	return list.Items
}

type pretendedTunnel struct {
	p *pretended
	o sidecar.Options
}

func (c *pretendedTunnel) Push(_ context.Context, paths ...string) error {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.p.pushed = append(c.p.pushed, paths...)
	return nil
}
func (c *pretendedTunnel) Pull(context.Context) (bool, error) { return false, nil }
func (c *pretendedTunnel) Remount(_ context.Context, _ int64, _ []sandbox.Mount, uid int) error {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.p.owner = uid
	return nil
}
func (c *pretendedTunnel) Reach(context.Context, string) (bool, error) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.p.tries++
	return c.p.tries <= c.p.openFor, nil
}
func (c *pretendedTunnel) Done() <-chan struct{} { return nil }
func (c *pretendedTunnel) Close() error          { return nil }

// TestLife: from Create to Remove, as the API server sees it.
func TestLife(t *testing.T) {
	p, spec := pretend(t), testSpec(t)
	made, err := p.d.Create(t.Context(), spec)
	if err != nil || made.State != sandbox.Running || made.ID != spec.ID {
		t.Fatalf("%+v, %v", made, err)
	}
	p.mu.Lock()
	pushed := slices.Clone(p.pushed)
	p.mu.Unlock()
	if want := []string{sandbox.UserDataDir, sandbox.SkillsDir}; !slices.Equal(pushed, want) {
		t.Errorf("pushed %v, want %v", pushed, want)
	}
	secret, err := p.api.Core.Secrets(p.d.o.Namespace).Get(t.Context(), secretName(spec.ID), metav1.GetOptions{})
	if err != nil || len(secret.OwnerReferences) != 1 || secret.OwnerReferences[0].Name != string(spec.ID) {
		t.Errorf("the certificate does not go with the pod: %+v, %v", secret, err)
	}
	if list, err := p.d.List(t.Context(), spec.Labels); err != nil || len(list) != 1 {
		t.Errorf("listed %+v, %v", list, err)
	}
	p.removeTold(spec.ID)
}

// TestSecretOfFormerPod: a sandbox is made although the Secret of a pod that had its name is still being deleted.
func TestSecretOfFormerPod(t *testing.T) {
	p, spec := pretend(t), testSpec(t)
	tries := 0
	p.api.PrependReactor("create", "secrets", func(kubetesting.Action) (bool, runtime.Object, error) {
		tries++
		return tries < 3, nil, apierrors.NewAlreadyExists(corev1.Resource("secrets"), secretName(spec.ID))
	})
	if made, err := p.d.Create(t.Context(), spec); err != nil || made.State != sandbox.Running || tries != 3 {
		t.Fatalf("%d tries: %+v, %v", tries, made, err)
	}
	p.removeTold(spec.ID)
}

// removeTold removes a sandbox, whose end has to be told, and which then is not there.
func (p *pretended) removeTold(id sandbox.ID) {
	p.Helper()
	events, err := p.d.Watch(p.Context())
	if err != nil {
		p.Fatal(err)
	}
	if err := p.d.Remove(p.Context(), id); err != nil {
		p.Fatal(err)
	}
	if e := <-events; e.ID != id || e.State != sandbox.Lost {
		p.Errorf("told %+v", e)
	}
	if _, err := p.d.Inspect(p.Context(), id); !errors.Is(err, sandbox.NotFound) {
		p.Errorf("after Remove: %v", err)
	}
}

// TestAttachOwner: what is pulled belongs to whom the attachment says, and else to the sandbox's uid.
func TestAttachOwner(t *testing.T) {
	p, spec := pretend(t), testSpec(t)
	if _, err := p.d.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	for given, want := range map[int]int{0: spec.UID, spec.UID + 7: spec.UID + 7} {
		if err := p.d.Attach(t.Context(), driver.Attachment{ID: spec.ID, Token: spec.Token, Mounts: spec.Mounts, UID: given}); err != nil {
			t.Fatal(err)
		}
		p.mu.Lock()
		if p.owner != want {
			t.Errorf("attached for %d, what is pulled belongs to %d, want %d", given, p.owner, want)
		}
		p.mu.Unlock()
	}
}

// TestHeard: a sandbox that spoke through its sidecar runs, and is filled, before the kubelet has told that it does. Who did
// not hear it says what the cluster says.
func TestHeard(t *testing.T) {
	p, spec := pretend(t), testSpec(t)
	p.status = startingStatus("PodInitializing")
	p.d.dial = func(_ context.Context, so sidecar.Options) (tunnels.Tunnel, error) {
		so.Heard()
		return &pretendedTunnel{p: p, o: so}, nil
	}
	other, err := build(*p.d.o, p.api.Clientset, dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close() //nolint:errcheck // test
	if made, err := p.d.Create(t.Context(), spec); err != nil || made.State != sandbox.Running || len(p.pushed) == 0 {
		t.Fatalf("%+v, %v, pushed %v", made, err, p.pushed)
	}
	for d, want := range map[*Driver]sandbox.State{p.d: sandbox.Running, other: sandbox.Starting} {
		one, err := d.Inspect(t.Context(), spec.ID)
		list, e := d.List(t.Context(), nil)
		if err != nil || e != nil || one.State != want || len(list) != 1 || list[0].State != want {
			t.Errorf("%+v, %v, %+v, %v, want %s", one, err, list, e, want)
		}
	}
	// What the cluster says of the end counts, whatever was said before.
	ended := p.pods()[0]
	ended.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}
	if _, err := p.api.Core.Pods(p.d.o.Namespace).UpdateStatus(t.Context(), &ended, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if one, err := p.d.Inspect(t.Context(), spec.ID); err != nil || one.State != sandbox.Lost {
		t.Errorf("after its end: %+v, %v", one, err)
	}
}

// TestCreateFails: each refusal of the cluster has its kind and says what is missing, and nothing is left.
func TestCreateFails(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for name, c := range map[string]struct {
		cluster func(*pretended)
		want    sandbox.Kind
		words   string
	}{
		"no node": {func(p *pretended) {
			p.status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available: 3 Insufficient memory.",
			}}}
		}, sandbox.CapacityExceeded, "3 Insufficient memory"},
		"no image": {func(p *pretended) {
			p.status = waiting(containerSandbox, "ErrImagePull", "not found").Status
		}, sandbox.NotFound, "image"},
		"no image, and a sidecar that does not answer": {func(p *pretended) {
			p.status = startingStatus("ErrImageNeverPull")
			p.d.dial = func(ctx context.Context, _ sidecar.Options) (tunnels.Tunnel, error) {
				<-ctx.Done()
				return nil, sandbox.Wrap(sandbox.Unavailable, ctx.Err(), "the sandbox cannot be reached")
			}
		}, sandbox.NotFound, "image"},
		"evicted": {func(p *pretended) {
			p.status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: memory."}
		}, sandbox.Unavailable, "Evicted"},
		"quota": {func(p *pretended) {
			p.fails("create", "pods", apierrors.NewForbidden(pods, "x", errors.New("exceeded quota: few, requested: pods=1, used: pods=9, limited: pods=9")))
		}, sandbox.CapacityExceeded, "few, requested: pods=1"},
		"no rule for pods": {func(p *pretended) {
			p.fails("create", "pods", apierrors.NewForbidden(pods, "x", errors.New(`User "a" cannot create resource "pods"`)))
		}, sandbox.Unavailable, "create pods"},
		"no rule for secrets": {func(p *pretended) {
			p.fails("create", "secrets", apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "x", errors.New(`User "a" cannot create resource "secrets"`)))
		}, sandbox.Unavailable, "create secrets"},
		"a busy API server": {func(p *pretended) {
			p.fails("create", "pods", apierrors.NewTooManyRequests("later", 1))
		}, sandbox.Unavailable, "cannot be reached"},
		"no sidecar": {func(p *pretended) {
			p.d.dial = func(context.Context, sidecar.Options) (tunnels.Tunnel, error) {
				return nil, sandbox.Errorf(sandbox.Unavailable, "the sandbox cannot be reached")
			}
		}, sandbox.Unavailable, "cannot be reached"},
	} {
		t.Run(name, func(t *testing.T) {
			p := pretend(t)
			c.cluster(p)
			_, err := p.d.Create(t.Context(), testSpec(t))
			var ours *sandbox.Error
			if !errors.As(err, &ours) || ours.Kind != c.want || !strings.Contains(ours.Detail, c.words) {
				t.Errorf("%v (%s), want %s with %q", err, sandbox.KindOf(err), c.want, c.words)
			}
			if left := p.pods(); len(left) > 0 {
				t.Errorf("left over: %v", left[0].Name)
			}
		})
	}
}

// TestWatchInterrupted: what ends while the API server tells nothing is told when it does again.
func TestWatchInterrupted(t *testing.T) {
	p := pretend(t)
	var ids []sandbox.ID
	for _, id := range []sandbox.ID{"skerry-00000000000000a1", "skerry-00000000000000a2"} {
		spec := testSpec(t)
		spec.ID = id
		if _, err := p.d.Create(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	events, err := p.d.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The watch breaks, and what happens until the next one the API server has forgotten by then.
	back := make(chan struct{})
	release := sync.OnceFunc(func() { close(back) })
	defer release()
	var once sync.Once
	p.api.PrependWatchReactor("pods", func(kubetesting.Action) (taken bool, _ watch.Interface, err error) {
		<-back
		once.Do(func() { taken, err = true, apierrors.NewResourceExpired("too old resource version") })
		return taken, nil, err
	})
	// Not by the client: while a reactor waits, it answers no request.
	there, resource := p.api.tracker, corev1.SchemeGroupVersion.WithResource("pods")
	ended := p.pods()[1]
	p.hangUp()
	if err := there.Delete(resource, p.d.o.Namespace, string(ids[0])); err != nil {
		t.Fatal(err)
	}
	ended.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}}
	if err := there.Update(resource, &ended, p.d.o.Namespace); err != nil {
		t.Fatal(err)
	}
	release()
	told := map[sandbox.ID]driver.Event{}
	for range ids {
		select {
		case e := <-events:
			told[e.ID] = e
		case <-time.After(60 * time.Second):
			t.Fatalf("told only %v", told)
		}
	}
	if len(told) != 2 || told[ids[0]].OOM || !told[ids[1]].OOM {
		t.Errorf("told %+v", told)
	}
}

// TestLabelsComeLate: a claim does not wait for its labels, and they come though the API server refuses them at first.
func TestLabelsComeLate(t *testing.T) {
	p, spec := pretend(t), testSpec(t)
	if _, err := p.d.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	refusals := 0
	p.api.PrependReactor("patch", "pods", func(kubetesting.Action) (bool, runtime.Object, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if refusals++; refusals > 2 {
			return false, nil, nil
		}
		return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, string(spec.ID), errors.New("another wrote it"))
	})
	if err := p.d.Attach(t.Context(), driver.Attachment{ID: spec.ID, Token: 1, Mounts: spec.Mounts, Labels: map[string]string{"thread": "a/b"}}); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		now, err := p.d.Inspect(t.Context(), spec.ID)
		if err != nil {
			t.Fatal(err)
		}
		if now.Labels["thread"] == "a/b" && now.Labels[sandbox.LabelTenant] == "acme" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the labels are %v", now.Labels)
		}
	}
}

// TestClaimIsOnePatch: of a pod that was seen a claim asks the API server nothing, and puts its labels there in one go.
func TestClaimIsOnePatch(t *testing.T) {
	p, spec := pretend(t), testSpec(t)
	if _, err := p.d.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	p.api.ClearActions()
	if err := p.d.Attach(t.Context(), driver.Attachment{ID: spec.ID, Token: 1, Mounts: spec.Mounts, Labels: map[string]string{"thread": "a", "user": "b"}}); err != nil {
		t.Fatal(err)
	}
	var verbs []string
	for end := time.Now().Add(30 * time.Second); !slices.Contains(verbs, "patch") && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		verbs = nil
		for _, a := range p.api.Actions() {
			verbs = append(verbs, a.GetVerb())
		}
	}
	if !slices.Equal(verbs, []string{"patch"}) {
		t.Errorf("the API server was asked to %q", verbs)
	}
}
