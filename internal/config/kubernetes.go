package config

import "strings"

// Kubernetes says where sandboxes are pods, and how they are made.
type Kubernetes struct {
	// Kubeconfig is a file that says where the API server is and who asks; empty: the service account of the pod that the
	// server runs in.
	Kubeconfig string `yaml:"kubeconfig"`
	// Namespace is the one of the sandboxes, which holds nothing else; empty: that of the kubeconfig, or of the pod.
	Namespace string `yaml:"namespace"`
	// BridgeImage is the image of the sidecar, of this server's version.
	BridgeImage string `yaml:"bridge_image"`
	// ImagePullPolicy of all images of sandboxes: Always, IfNotPresent or Never.
	ImagePullPolicy string `yaml:"image_pull_policy"`
	// ImagePullSecrets are names of Secrets in Namespace.
	ImagePullSecrets []string `yaml:"image_pull_secrets"`
	// RuncClass and RunscClass are the RuntimeClasses of templates with the runtime runc and runsc; an empty one is the
	// cluster's usual runtime.
	RuncClass  string `yaml:"runc_class"`
	RunscClass string `yaml:"runsc_class"`
	// Seccomp is a profile on the nodes, relative to the kubelet's folder of them; empty: RuntimeDefault.
	Seccomp string `yaml:"seccomp"`
	// CPUPercent and MemoryPercent are how much of a sandbox's limits is requested of the scheduler.
	CPUPercent    int `yaml:"cpu_percent"`
	MemoryPercent int `yaml:"memory_percent"`
	// NodeSelector are labels of the nodes for sandboxes, name=value.
	NodeSelector []string `yaml:"node_selector"`
	// PriorityClass and ServiceAccount of the pods. None has a token of its service account.
	PriorityClass  string `yaml:"priority_class"`
	ServiceAccount string `yaml:"service_account"`
	// Unpoliced lets sandboxes be made where no NetworkPolicy closes their network.
	Unpoliced bool `yaml:"unpoliced"`
}

func defaultKubernetes() Kubernetes {
	return Kubernetes{ImagePullPolicy: "IfNotPresent", RunscClass: "gvisor", CPUPercent: 10, MemoryPercent: 50}
}

func (k *Kubernetes) check(bad func(key, format string, args ...any)) {
	if k.BridgeImage == "" {
		bad("kubernetes.bridge_image", "is empty: name the image of the sidecar, which has to be of this server's version")
	}
	switch k.ImagePullPolicy {
	case "Always", "IfNotPresent", "Never":
	default:
		bad("kubernetes.image_pull_policy", "%.40q is not one of Always, IfNotPresent, Never", k.ImagePullPolicy)
	}
	for key, n := range map[string]int{"kubernetes.cpu_percent": k.CPUPercent, "kubernetes.memory_percent": k.MemoryPercent} {
		if n < 1 || n > 100 {
			bad(key, "%d is not 1 to 100", n)
		}
	}
	for _, label := range k.NodeSelector {
		if name, _, ok := strings.Cut(label, "="); !ok || name == "" {
			bad("kubernetes.node_selector", "%.80q is not name=value", label)
		}
	}
}
