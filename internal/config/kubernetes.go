package config

import (
	"regexp"
	"strings"
)

// quantity is what of Kubernetes' quantities makes sense for a disk.
var quantity = regexp.MustCompile(`^[1-9][0-9]{0,8}(M|G|T|P|Mi|Gi|Ti|Pi)$`)

// Kubernetes says where sandboxes are pods, and how they are made.
type Kubernetes struct {
	// Kubeconfig is a file that says where the API server is and who asks; empty: the service account of the pod that the
	// server runs in.
	Kubeconfig string `yaml:"kubeconfig"`
	// Namespace is that of the sandboxes alone; empty: that of the kubeconfig, or of the pod.
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
	// Tolerations are taints of nodes that sandboxes bear, as kubectl prints them: name=value:effect. Without a value it is any,
	// without an effect all of them.
	Tolerations []string `yaml:"tolerations"`
	// PriorityClass and ServiceAccount of the pods. None has a token of its service account.
	PriorityClass  string `yaml:"priority_class"`
	ServiceAccount string `yaml:"service_account"`
	// Workspaces says where the files of threads are: ephemeral (in the sandbox, and copied to the data folder) or volume (on a
	// PersistentVolumeClaim of each user). A thread that has been on a volume stays there.
	Workspaces string `yaml:"workspaces"`
	// VolumeClass, VolumeSize and VolumeAccess are what claims of users ask for; an empty class is the cluster's default.
	VolumeClass  string `yaml:"volume_class"`
	VolumeSize   string `yaml:"volume_size"`
	VolumeAccess string `yaml:"volume_access"`
	// Unpoliced lets sandboxes be made where no NetworkPolicy closes their network.
	Unpoliced bool `yaml:"unpoliced"`
}

func defaultKubernetes() Kubernetes {
	return Kubernetes{
		ImagePullPolicy: "IfNotPresent", RunscClass: "gvisor", CPUPercent: 10, MemoryPercent: 50,
		Workspaces: "ephemeral", VolumeSize: "20Gi", VolumeAccess: "ReadWriteOnce",
	}
}

// OnVolumes reports whether files of new threads lie on volumes of their users.
func (c *Config) OnVolumes() bool {
	return c.Driver == "kubernetes" && c.Kubernetes.Workspaces == "volume"
}

// taint is the form of one, with the effects that there are.
var taint = regexp.MustCompile(`^([^=:]+)(=[^=:]*)?(?::(NoSchedule|PreferNoSchedule|NoExecute))?$`)

// Taint is a taint that the pods tolerate.
type Taint struct {
	Name  string
	Value *string // nil: any
	// Effect: empty: all of them.
	Effect string
}

// Taints reads Tolerations, which were checked.
func (k *Kubernetes) Taints() []Taint {
	var all []Taint
	for _, text := range k.Tolerations {
		parts := taint.FindStringSubmatch(text)
		if parts == nil {
			continue
		}
		t := Taint{Name: parts[1], Effect: parts[3]}
		if value, ok := strings.CutPrefix(parts[2], "="); ok {
			t.Value = &value
		}
		all = append(all, t)
	}
	return all
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
	switch k.Workspaces {
	case "ephemeral", "volume":
	default:
		bad("kubernetes.workspaces", "%.40q is not one of ephemeral, volume", k.Workspaces)
	}
	switch k.VolumeAccess {
	case "ReadWriteOnce", "ReadWriteMany":
	default:
		bad("kubernetes.volume_access", "%.40q is not one of ReadWriteMany, ReadWriteOnce", k.VolumeAccess)
	}
	if !quantity.MatchString(k.VolumeSize) {
		bad("kubernetes.volume_size", "%.40q is no size as in 20Gi", k.VolumeSize)
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
	for _, text := range k.Tolerations {
		if !taint.MatchString(text) {
			bad("kubernetes.tolerations", "%.80q is not name=value:effect, with the effect NoSchedule, PreferNoSchedule or NoExecute", text)
		}
	}
}
