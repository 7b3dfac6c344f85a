package kubernetes

import (
	"maps"
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubetesting "k8s.io/client-go/testing"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestRights: what the driver asks of the API server, by all that it can do, is what Rights lists, and nothing there is
// never asked for.
func TestRights(t *testing.T) {
	p := pretendClaims(t)
	p.d.o.Unpoliced = false
	both := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	for _, there := range []runtime.Object{
		&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "closed", Namespace: p.d.o.Namespace}, Spec: networkingv1.NetworkPolicySpec{PolicyTypes: both}},
		&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "gvisor"}},
	} {
		if err := p.api.tracker.Add(there); err != nil {
			t.Fatal(err)
		}
	}
	if caps, err := p.d.Capabilities(t.Context()); err != nil || len(caps.Runtimes) != 2 {
		t.Fatalf("%+v, %v", caps, err)
	}
	if words, err := p.d.ClaimsProblem(t.Context()); err != nil || words != "" {
		t.Fatalf("%q, %v", words, err)
	}
	own, claimed := onVolume(t, "a"), claimSpec(t)
	claimed.ID = "skerry-00000000000000c1"
	lost := claimed
	lost.ID = "skerry-00000000000000c2"
	annotations, err := ownAnnotations(lost)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.d.claims.Create(t.Context(), p.d.o.sandboxClaim(lost, annotations), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if now, err := p.d.Inspect(t.Context(), lost.ID); err != nil || now.State != sandbox.Starting {
		t.Errorf("%+v, %v", now, err)
	}
	p.agentSandbox(claimed, nil)
	for _, spec := range []sandbox.Spec{own, claimed} {
		if _, err := p.d.Create(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		if err := p.d.Attach(t.Context(), driver.Attachment{ID: spec.ID, Token: 1, Mounts: spec.Mounts, Labels: map[string]string{"a": "b"}}); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := p.d.List(t.Context(), nil); err != nil || len(list) != 3 {
		t.Errorf("%+v, %v", list, err)
	}
	for _, id := range []sandbox.ID{own.ID, claimed.ID} {
		if err := p.d.Remove(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	used := map[Right]bool{}
	for _, a := range append(p.api.Actions(), p.objects.Actions()...) {
		if a.GetSubresource() != "" {
			t.Errorf("%s %s/%s: no subresource is in the rights", a.GetVerb(), a.GetResource().Resource, a.GetSubresource())
		}
		used[right(a)] = true
	}
	listed := map[Right]bool{}
	for _, r := range Rights() {
		listed[Right{Group: r.Group, Resource: r.Resource, Verb: r.Verb}] = true
	}
	for r := range maps.Keys(used) {
		if !listed[r] {
			t.Errorf("the driver asks to %s %s, which is not in Rights", r.Verb, r.Resource)
		}
	}
	for r := range maps.Keys(listed) {
		if !used[r] {
			t.Errorf("%s %s is in Rights, and nothing asks for it", r.Verb, r.Resource)
		}
	}
	if len(listed) != len(Rights()) || slices.ContainsFunc(Rights(), func(r Right) bool { return r.Resource == "*" || r.Verb == "*" }) {
		t.Errorf("%v: twice, or everything", Rights())
	}
}

func right(a kubetesting.Action) Right {
	return Right{Group: a.GetResource().Group, Resource: a.GetResource().Resource, Verb: a.GetVerb()}
}
