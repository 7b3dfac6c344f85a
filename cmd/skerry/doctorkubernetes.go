package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "k8s.io/client-go/kubernetes"

	"github.com/skerry-sandbox/skerry/internal/doctor"
	"github.com/skerry-sandbox/skerry/internal/driver/kubernetes"
)

// right is what may be done with a kind of object.
type right struct{ group, resource, verbs string }

// needed is what the server does in the namespace of its sandboxes: the rules of its Role.
var needed = []right{
	{"", "pods", "create get list watch patch delete"},
	{"", "secrets", "create"},
	{"networking.k8s.io", "networkpolicies", "list"},
}

// onVolumes is what it does besides where the files of threads are on volumes.
var onVolumes = []right{{"", "persistentvolumeclaims", "create get"}}

// cluster looks at the API server, and at what this server may do there. The rest is seen by a sandbox that is made: see
// the lines of the runtimes and templates.
func (e *examination) cluster(ctx context.Context, r *doctor.Report) {
	o, err := e.parts(e.scratch, e.cfg.Driver).kubernetesOptions()
	if err != nil {
		r.Problem("", "run doctor where the server runs, or name a file with kubernetes.kubeconfig", "%s", err)
		return
	}
	client, err := kube.NewForConfig(o.Config)
	if err != nil {
		r.Problem("", "mend the file of kubernetes.kubeconfig", "%s", err)
		return
	}
	version, err := client.ServerVersion()
	if err != nil {
		r.Problem("API server", "look whether this machine reaches it, and whether kubectl with the same kubeconfig works", "%s does not answer: %s", o.Config.Host, err)
		return
	}
	r.OK("API server", "%s, Kubernetes %s", o.Config.Host, version.GitVersion)
	rights := needed
	if e.cfg.OnVolumes() {
		rights = append(slices.Clone(rights), onVolumes...)
	}
	missing, err := mayNot(ctx, client, o.Namespace, rights)
	switch {
	case err != nil:
		r.Problem("rights", "look whether the API server is well", "it does not tell what this server may do: %s", err)
	case len(missing) > 0:
		r.Problem("rights", "give the server's account the Role of the Helm chart (rbac.create)", "in the namespace %s it may not: %s", o.Namespace, strings.Join(missing, ", "))
	default:
		r.OK("rights", "all that a server does in the namespace %s", o.Namespace)
	}
}

// policies says what the sandboxes of the templates showed of the cluster's network.
func (e *examination) policies(ctx context.Context, r *doctor.Report) {
	_, d, err := e.chosen(ctx)
	if err == nil {
		_, err = e.tried.get(ctx)
	}
	k, ok := d.(*kubernetes.Driver)
	if err != nil || !ok {
		r.Problem("", "see the lines of driver and templates", "nothing is known of them without a sandbox")
		return
	}
	shown, problem := k.PoliciesEnforced()
	switch {
	case problem != "":
		r.Problem("", "install a network plugin that enforces them (Calico, Cilium, …), or switch that on in yours", "%s", problem)
	case e.cfg.Kubernetes.Unpoliced:
		r.Warn("", "leave kubernetes.unpoliced away", "not looked at (kubernetes.unpoliced): sandboxes may have a network")
	case !shown:
		r.Warn("", "see the lines of the templates", "not known: no sandbox started that could show it")
	default:
		r.OK("", "are enforced: a sandbox did not reach the API server")
	}
}

// mayNot gives what the server may not do that it does, as "verb resource".
func mayNot(ctx context.Context, client kube.Interface, namespace string, rights []right) (missing []string, err error) {
	for _, n := range rights {
		for verb := range strings.FieldsSeq(n.verbs) {
			review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: namespace, Verb: verb, Group: n.group, Resource: n.resource,
				}},
			}, metav1.CreateOptions{})
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", verb, n.resource, err)
			}
			if !review.Status.Allowed {
				missing = append(missing, verb+" "+n.resource)
			}
		}
	}
	return missing, nil
}
