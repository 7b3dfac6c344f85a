package examination

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/skerry-sandbox/skerry/internal/app"
	"github.com/skerry-sandbox/skerry/internal/driver/kubernetes"
	"github.com/skerry-sandbox/skerry/internal/observe/doctor"
)

// clusterChecks look at the cluster.
type clusterChecks struct{ *examination }

// cluster looks at the API server, and at what this server may do there. The rest is seen by a sandbox that is made: see
// the lines of the runtimes and templates.
func (e clusterChecks) cluster(ctx context.Context, r *doctor.Report) {
	o, err := app.KubernetesOptions(e.config(e.scratch, e.cfg.Driver), e.log)
	if err != nil {
		r.Problem("", "run doctor where the server runs, or name a file with kubernetes.kubeconfig", "%s", err)
		return
	}
	var client kubernetes.Clientset
	http, err := rest.HTTPClientFor(o.Config)
	if err == nil {
		client, err = kubernetes.NewClientset(o.Config, http)
	}
	if err != nil {
		r.Problem("", "mend the file of kubernetes.kubeconfig", "%s", err)
		return
	}
	version, err := client.Version(ctx)
	if err != nil {
		r.Problem("API server", "look whether this machine reaches it, and whether kubectl with the same kubeconfig works", "%s: %s", o.Config.Host, err)
		return
	}
	r.OK("API server", "%s, Kubernetes %s", o.Config.Host, version.GitVersion)
	missing, err := mayNot(ctx, client, o, e.cfg.OnVolumes())
	switch {
	case err != nil:
		r.Problem("rights", "look whether the API server is well", "it does not tell what this server may do: %s", err)
	case len(missing) > 0:
		r.Problem("rights", "give the server's account the Role of the Helm chart (rbac.create, and sandboxes.claims for templates with kubernetes.claim)", "in the namespace %s it may not: %s", o.Namespace, strings.Join(missing, ", "))
	default:
		r.OK("rights", "all that a server does in the namespace %s", o.Namespace)
	}
}

// policies says what the sandboxes of the templates showed of the cluster's network.
func (e clusterChecks) policies(ctx context.Context, r *doctor.Report) {
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

// mayNot returns what the server may not do that it does, as "verb resource".
func mayNot(ctx context.Context, client kubernetes.Clientset, o kubernetes.Options, volumes bool) (missing []string, err error) {
	for _, right := range kubernetes.Rights() {
		if right.Cluster || right.Claims && !o.Claims || right.Volumes && !volumes { // a runtime whose class cannot be looked up has a line of its own
			continue
		}
		review, err := client.Authorization.SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: o.Namespace, Verb: right.Verb, Group: right.Group, Resource: right.Resource,
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", right.Verb, right.Resource, err)
		}
		if !review.Status.Allowed {
			missing = append(missing, right.Verb+" "+right.Resource)
		}
	}
	return missing, nil
}
