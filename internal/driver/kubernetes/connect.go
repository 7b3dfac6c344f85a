package kubernetes

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/skerry-sandbox/skerry/internal/platform/buildinfo"
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
