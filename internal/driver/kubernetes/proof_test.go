package kubernetes

import (
	"fmt"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// proving is an API server in memory, with a driver that has to see a sandbox be closed.
func proving(t *testing.T, openFor int) *pretended {
	t.Helper()
	p := pretend(t)
	p.d.o.Unpoliced, p.d.o.ProveClosed, p.d.o.Config, p.d.proof.settle = false, true, &rest.Config{Host: "https://192.0.2.1"}, 0
	p.openFor = openFor
	policy := closed()
	policy.Namespace = p.d.o.Namespace
	if err := p.api.tracker.Add(policy); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestProof: a sandbox that gets out is not handed out, and is the last one for a while.
func TestProof(t *testing.T) {
	p := proving(t, 1)
	_, err := p.d.Create(t.Context(), testSpec(t))
	if sandbox.KindOf(err) != sandbox.NotSupported || !strings.Contains(err.Error(), "does not enforce NetworkPolicies") || !strings.Contains(err.Error(), "192.0.2.1:443") {
		t.Errorf("a sandbox that gets out: %v", err)
	}
	if left := p.pods(); len(left) != 0 {
		t.Errorf("it is there still: %v", left)
	}
	caps, err := p.d.Capabilities(t.Context())
	if err != nil || len(caps.Runtimes) != 0 || !strings.Contains(caps.RuntimeProblems["runc"], "does not enforce") {
		t.Errorf("after it: %+v, %v", caps, err)
	}
	if shown, problem := p.d.PoliciesEnforced(); shown || !strings.Contains(problem, "does not enforce") {
		t.Errorf("it says: %v, %q", shown, problem)
	}
	if _, err := p.d.Create(t.Context(), testSpec(t)); sandbox.KindOf(err) != sandbox.NotSupported || p.tries != 1 {
		t.Errorf("the next one: %v, after %d tries", err, p.tries)
	}
	// The operator installs a plugin.
	p.d.proof.open = time.Now().Add(-failedTime - time.Second)
	p.d.policy.at = time.Time{}
	next := testSpec(t)
	next.ID = "skerry-fedcba9876543210"
	if _, err := p.d.Create(t.Context(), next); err != nil || p.tries != 2 {
		t.Errorf("when it is closed: %v, after %d tries", err, p.tries)
	}
	if shown, problem := p.d.PoliciesEnforced(); !shown || problem != "" {
		t.Errorf("when it is closed it says: %v, %q", shown, problem)
	}
}

// TestProofOnce: what was shown counts for an hour. A plugin has its time with a new pod; as long as it takes any, each sandbox waits.
func TestProofOnce(t *testing.T) {
	p := proving(t, 1)
	p.d.proof.settle = time.Minute
	for i, c := range []struct {
		later time.Duration
		tries int
	}{{0, 2}, {0, 3}, {0, 3}, {proofTime + time.Second, 4}} {
		p.d.proof.closed = p.d.proof.closed.Add(-c.later)
		spec := testSpec(t)
		spec.ID = sandbox.ID(fmt.Sprintf("skerry-%016x", i))
		if _, err := p.d.Create(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		if p.tries != c.tries {
			t.Errorf("sandbox %d: %d tries, want %d", i, p.tries, c.tries)
		}
	}
}

// closed is the least policy that the driver wants.
func closed() *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "sandboxes"}, Spec: networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
	}}
}
