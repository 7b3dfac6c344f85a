package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sidecar"
)

// findings are what keeps the cluster from running sandboxes.
type findings struct{ *Driver }

// policyTime is how long it counts that the namespace is closed: what an administrator opens is noticed then.
const policyTime = 30 * time.Second

// policyCheck remembers the last look at the namespace and at RuntimeClasses.
type policyCheck struct {
	mu       sync.Mutex
	at       time.Time
	problems map[string]string // why a runtime cannot be used, by its name
}

// usable returns the RuntimeClass of a runtime, and why it cannot be used, or "".
func (d findings) usable(ctx context.Context, name string) (class, problem string, err error) {
	known, err := hardening.FindRuntime(name)
	if err != nil {
		return "", "", err
	}
	problems, err := d.problems(ctx)
	return d.o.RuntimeClasses[known.Name], problems[known.Name], err
}

// problems says for each runtime why no sandbox can be made on it.
func (d findings) problems(ctx context.Context) (map[string]string, error) {
	d.policy.mu.Lock()
	defer d.policy.mu.Unlock()
	if !d.policy.at.IsZero() && time.Since(d.policy.at) < policyTime {
		return d.policy.problems, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	open, err := d.openNetwork(ctx, d.o.podLabels(nil))
	if err != nil {
		return nil, err
	}
	if open == "" {
		open = d.proof.failed()
	}
	problems := make(map[string]string)
	for _, known := range hardening.Runtimes() {
		why := open
		if why == "" {
			if why, err = d.noClass(ctx, known.Name); err != nil {
				return nil, err
			}
		}
		if why != "" {
			problems[known.Name] = why
		}
	}
	d.policy.at, d.policy.problems = time.Now(), problems
	return problems, nil
}

// noClass says why a runtime has no RuntimeClass here, or "".
func (d findings) noClass(ctx context.Context, name string) (string, error) {
	class, named := d.o.RuntimeClasses[name]
	if !named {
		return "no RuntimeClass is configured for it", nil
	}
	if class == "" {
		return "", nil
	}
	_, err := d.client.Node.RuntimeClasses().Get(ctx, class, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("the cluster has no RuntimeClass %q", class), nil
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("this server may not look up RuntimeClass %q; it lacks the rule get runtimeclasses", class), nil
	case err != nil:
		return "", apiError(err, "the cluster does not tell its RuntimeClasses", "get runtimeclasses")
	}
	return "", nil
}

// openNetwork says why a pod with these labels would have a network, or "". Policies add up: each rule of each counts.
func (d findings) openNetwork(ctx context.Context, pod map[string]string) (string, error) {
	if d.o.Unpoliced {
		return "", nil
	}
	list, err := d.client.Networking.NetworkPolicies(d.o.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", apiError(err, "the cluster does not tell its network policies", "list networkpolicies")
	}
	return openIn(list.Items, pod, d.o.Namespace), nil
}

// openIn judges the policies of a namespace for pods with these labels.
func openIn(policies []networkingv1.NetworkPolicy, pod map[string]string, namespace string) string {
	in, out := false, false
	for i := range policies {
		p := &policies[i]
		selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		if err != nil || !selector.Matches(labels.Set(pod)) {
			continue
		}
		types := p.Spec.PolicyTypes
		if len(types) == 0 {
			types = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		}
		in = in || slices.Contains(types, networkingv1.PolicyTypeIngress)
		out = out || slices.Contains(types, networkingv1.PolicyTypeEgress)
		if slices.Contains(types, networkingv1.PolicyTypeEgress) && len(p.Spec.Egress) > 0 {
			return fmt.Sprintf("NetworkPolicy %s in namespace %s lets sandboxes out: its egress must be empty", p.Name, namespace)
		}
		for _, rule := range p.Spec.Ingress {
			if !onlyBridge(rule) {
				return fmt.Sprintf("NetworkPolicy %s in namespace %s lets more into sandboxes than the server to port %d of the sidecar", p.Name, namespace, sidecar.Port)
			}
		}
	}
	if !in || !out {
		return fmt.Sprintf("namespace %s has no NetworkPolicy that closes the network of sandboxes both ways", namespace)
	}
	return ""
}

// onlyBridge reports whether a rule lets named peers reach the sidecar, and nothing else.
func onlyBridge(rule networkingv1.NetworkPolicyIngressRule) bool {
	if len(rule.From) == 0 || len(rule.Ports) == 0 {
		return false
	}
	for _, port := range rule.Ports {
		tcp := port.Protocol == nil || *port.Protocol == corev1.ProtocolTCP
		if !tcp || port.EndPort != nil || port.Port == nil || port.Port.String() != "bridge" && port.Port.IntVal != sidecar.Port {
			return false
		}
	}
	return true
}

// noUserNamespace is why no pod has one.
const noUserNamespace = "pods share the node's; a cluster that has one for each does it for all users of the pod alike"

// Capabilities implements driver.Driver.
func (d *Driver) Capabilities(ctx context.Context) (driver.Capabilities, error) {
	problems, err := findings{d}.problems(ctx)
	if err != nil {
		return driver.Capabilities{}, err
	}
	c := driver.Capabilities{
		Name: Name, RuntimeProblems: make(map[string]string), NoUserNamespace: make(map[string]string),
		Network: "policy", Isolated: true, Unkept: d.o.unkept(),
	}
	for _, known := range hardening.Runtimes() {
		if why := problems[known.Name]; why != "" {
			c.RuntimeProblems[known.Name] = why
			continue
		}
		c.Runtimes = append(c.Runtimes, known.Name)
		c.NoUserNamespace[known.Name] = noUserNamespace
		if slices.Contains(d.o.OOMEndsSandbox, known.Name) {
			c.OOMEndsSandbox = append(c.OOMEndsSandbox, known.Name)
		}
	}
	return c, nil
}

// noLooseFilter is why the system call filter is not loosened.
const noLooseFilter = "what is loosened in Skerry's own filter is still in that of the node's container engine: it takes a profile on the nodes (option seccomp)"

// unkept are the promises that a pod cannot ask for, and what stands in their place.
func (o Options) unkept() map[driver.Promise]string {
	out := map[driver.Promise]string{
		driver.VolumeFlags:  "Kubernetes mounts volumes without nosuid and nodev; what they would stop is stopped by no_new_privs and by the list of devices",
		driver.TmpfsFiles:   "Kubernetes bounds the bytes of volumes in memory and not their files, and gVisor has a /dev/shm of its own; the memory limit bounds those",
		driver.MaskedPaths:  "the container engine of the node says which parts of /proc and /sys are masked",
		driver.OwnCgroup:    "the container engine of the node makes one on nodes of cgroup version 2",
		driver.Terminals:    "the container engine of the node mounts them without a bound; the limits of processes and open files bound those of a sandbox",
		driver.EngineLimits: "the kubelet says the period of the CPU limit, the node whether there is swap, and processes are counted by uid",
	}
	if o.Seccomp == "" {
		out[driver.LooseFilter] = noLooseFilter
	}
	return out
}

// About implements driver.Describer.
func (d *Driver) About(ctx context.Context) (driver.About, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	version, err := d.client.Version(ctx)
	if err != nil {
		return driver.About{}, err
	}
	about := driver.About{Engine: fmt.Sprintf("Kubernetes %.40s", version.GitVersion), Programs: map[string]string{}, Advice: map[string]string{}}
	for _, known := range hardening.Runtimes() {
		class := d.o.RuntimeClasses[known.Name]
		if class != "" {
			about.Programs[known.Name] = "RuntimeClass " + class
		}
		about.Advice[known.Name] = advice(known.Name, class, d.o.Namespace)
	}
	return about, nil
}

// advice is what to do so that sandboxes start on a runtime.
func advice(runtime, class, namespace string) string {
	words := []string{"install the chart, which closes the network of namespace " + namespace}
	if class != "" {
		words = append(words, fmt.Sprintf("make the RuntimeClass %s, whose handler is %s on every node that matches it", class, runtime))
	}
	return strings.Join(words, ", and ")
}
