package main

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "k8s.io/client-go/kubernetes"

	"github.com/skerry-sandbox/skerry/internal/doctor"
)

// needed is what the server does in the namespace of its sandboxes: the rules of its Role.
var needed = []struct{ group, resource, verbs string }{
	{"", "pods", "create get list watch patch delete"},
	{"", "secrets", "create"},
	{"networking.k8s.io", "networkpolicies", "list"},
}

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
	missing, err := mayNot(ctx, client, o.Namespace)
	switch {
	case err != nil:
		r.Problem("rights", "look whether the API server is well", "it does not tell what this server may do: %s", err)
	case len(missing) > 0:
		r.Problem("rights", "give the server's account the Role of the Helm chart (rbac.create)", "in the namespace %s it may not: %s", o.Namespace, strings.Join(missing, ", "))
	default:
		r.OK("rights", "all that a server does in the namespace %s", o.Namespace)
	}
}

// mayNot gives what the server may not do that it does, as "verb resource".
func mayNot(ctx context.Context, client kube.Interface, namespace string) (missing []string, err error) {
	for _, n := range needed {
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
