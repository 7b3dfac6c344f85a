package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/version"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	networkingv1 "k8s.io/client-go/kubernetes/typed/networking/v1"
	nodev1 "k8s.io/client-go/kubernetes/typed/node/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/skerry-sandbox/skerry/internal/platform/buildinfo"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Connect says how the API server is reached, and returns the namespace that goes with it. kubeconfig is a file; "" = the
// service account of the pod that this process runs in.
func Connect(kubeconfig string) (config *rest.Config, namespace string, err error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
	client := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil)
	if kubeconfig == "" {
		config, err = rest.InClusterConfig()
	} else {
		config, err = client.ClientConfig()
	}
	if err != nil {
		return nil, "", fmt.Errorf("the API server of Kubernetes: %w", err)
	}
	if namespace, _, err = client.Namespace(); err != nil {
		return nil, "", fmt.Errorf("the namespace in Kubernetes: %w", err)
	}
	config.UserAgent = "skerry/" + buildinfo.Version()
	config.QPS = -1 // the API server shares itself out between its clients; 5 a second would be for people
	config.WarningHandler = rest.NoWarnings{}
	return config, namespace, nil
}

// Clientset has the groups of the API that a server uses. That of client-go has fifty more, and its informers as many: to
// compile them took an eighth of all that the program is compiled from.
type Clientset struct {
	Core          corev1.CoreV1Interface
	Networking    networkingv1.NetworkingV1Interface
	Node          nodev1.NodeV1Interface
	Authorization authorizationv1.AuthorizationV1Interface
}

// NewClientset returns clients that share one client of HTTP.
func NewClientset(config *rest.Config, client *http.Client) (set Clientset, err error) {
	if set.Core, err = corev1.NewForConfigAndClient(config, client); err != nil {
		return set, err
	}
	if set.Networking, err = networkingv1.NewForConfigAndClient(config, client); err != nil {
		return set, err
	}
	if set.Node, err = nodev1.NewForConfigAndClient(config, client); err != nil {
		return set, err
	}
	set.Authorization, err = authorizationv1.NewForConfigAndClient(config, client)
	return set, err
}

// Version asks the API server what it is.
func (c Clientset) Version(ctx context.Context) (info version.Info, err error) {
	body, err := c.Core.RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return info, apiError(err, "the API server of the cluster does not answer", "get /version")
	}
	if err := json.Unmarshal(body, &info); err != nil {
		return info, sandbox.Wrap(sandbox.NotSupported, err, "what answers is no API server of Kubernetes")
	}
	return info, nil
}
