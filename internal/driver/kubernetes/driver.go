package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/idlock"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/tunnels"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar"
	"github.com/skerry-sandbox/skerry/internal/sidecar/pki"
)

// Name is the driver's name in records.
const Name = "kubernetes"

// Options of New. The zero value of what is not required is a sensible one.
type Options struct {
	// Config says where the API server is, and who asks: see Connect. Required.
	Config *rest.Config
	// Namespace of the sandboxes, which holds nothing else. Required.
	Namespace string
	// Authority signs the certificates of pods. Required.
	Authority *pki.Authority
	// BridgeImage is the image of the sidecar; skerry-sandboxd is in it, too. Required.
	BridgeImage string

	// Pods say what is the same for all pods.
	Pods PodOptions
	// RuntimeClasses names the RuntimeClass for each of "runc" and "runsc"; "" = the cluster's usual runtime.
	// A runtime that is not named cannot be used. Nil = runc: "", runsc: "gvisor".
	RuntimeClasses map[string]string
	// Seccomp is a profile on the nodes (Localhost), relative to the kubelet's folder of them; "" = RuntimeDefault. PID 1
	// has Skerry's own profile in either case.
	Seccomp string
	// CPUShare and MemoryShare are the parts of a sandbox's limits that are requested of the scheduler: above 0, at
	// most 1. 0 = 0.1 of the CPU and 0.5 of the memory.
	CPUShare, MemoryShare float64
	// BridgeLimits are those of the sidecar. Nil = 500m and 128Mi.
	BridgeLimits corev1.ResourceList

	// Volumes are those of users.
	Volumes VolumeOptions

	// Claims: sandboxes may be claimed from warm pools of the cluster (Spec.ClaimPool), so claims are looked for.
	Claims bool
	// Unpoliced: sandboxes are made also where no NetworkPolicy of the namespace closes their network.
	Unpoliced bool
	// ProveClosed: with the first sandbox that is made, and one an hour, it is shown that the cluster enforces policies, which takes a second.
	// Where it does not, none is made.
	ProveClosed bool
	// OOMEndsSandbox names the runtimes under which an exec out of memory ends its pod. With runc it is so on nodes of
	// cgroup version 2, unless their kubelet has singleProcessOOMKill. Nil = both.
	OOMEndsSandbox []string

	// StartTimeout bounds how long a pod may take until it runs, pulling its image included; ScheduleTimeout how long
	// it may wait for a node. 0 = 2 minutes and 20 seconds.
	StartTimeout, ScheduleTimeout time.Duration
	// Log is told of what does not reach a caller. Nil: nothing is logged.
	Log *slog.Logger
}

// PodOptions say what is the same for all pods. The zero value is a sensible one.
type PodOptions struct {
	// PullPolicy of both images; "" = IfNotPresent. PullSecrets are names of Secrets in Options.Namespace.
	PullPolicy  corev1.PullPolicy
	PullSecrets []string
	// NodeSelector, Tolerations, PriorityClass and ServiceAccount are put on pods as they are. No pod has a token of
	// its service account.
	NodeSelector   map[string]string
	Tolerations    []corev1.Toleration
	PriorityClass  string
	ServiceAccount string
	// Labels and Annotations are put on pods, beside those of the driver.
	Labels, Annotations map[string]string
}

// Bounds of calls of the API server.
const (
	// askTimeout bounds a question: a few milliseconds as a rule, seconds when the API server is busy.
	askTimeout = 10 * time.Second
	// changeTimeout bounds one request that makes or changes something.
	changeTimeout = 20 * time.Second
	// removeTimeout bounds a removal, until the pod is gone. A pod with finalizers of others takes long.
	removeTimeout = 60 * time.Second

	// keepAlive is how soon a connection is noticed that leads nowhere any more.
	keepAlive = 15 * time.Second

	startTimeout    = 2 * time.Minute
	scheduleTimeout = 20 * time.Second
)

// Driver implements driver.Driver, driver.Volumes and driver.Describer.
type Driver struct {
	o       *Options
	client  Clientset
	objects dynamic.Interface
	claims  dynamic.ResourceInterface // SandboxClaims of the namespace
	hangUp  func()                    // closes all connections with the API server
	locks   idlock.Locks
	pods    *pods
	lookup  lookup
	tunnel  tunnels.Set
	policy  policyCheck
	proof   proof
	labels  labelQueue
	dial    func(context.Context, sidecar.Options) (tunnels.Tunnel, error)

	digests *sidecar.Digests
	closing context.Context    // ends with Close
	close   context.CancelFunc // ends closing
	running sync.WaitGroup     // goroutines of the driver
}

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Volumes   = (*Driver)(nil)
	_ driver.Describer = (*Driver)(nil)
)

// New makes a driver. It begins to watch the namespace, and does not wait for the API server: a server that is away now
// may come.
func New(o Options) (*Driver, error) {
	if o.Config == nil {
		return nil, errors.New("kubernetes driver: no API server is named")
	}
	// Connections of the driver's own: those of watches are busy to the end, and must go with it.
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: askTimeout, KeepAlive: keepAlive}).DialContext)
	config := rest.CopyConfig(o.Config)
	config.Dial = dialer.DialContext
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("kubernetes driver: %w", err)
	}
	set, err := NewClientset(config, client)
	if err != nil {
		return nil, fmt.Errorf("kubernetes driver: %w", err)
	}
	objects, err := dynamic.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("kubernetes driver: %w", err)
	}
	d, err := build(o, set, objects)
	if err != nil {
		return nil, err
	}
	d.hangUp = dialer.CloseAll
	return d, nil
}

// build makes a driver with clients that are there.
func build(o Options, client Clientset, objects dynamic.Interface) (*Driver, error) {
	if err := complete(&o); err != nil {
		return nil, fmt.Errorf("kubernetes driver: %w", err)
	}
	d := &Driver{o: &o, client: client, objects: objects, claims: objects.Resource(claimResource).Namespace(o.Namespace), hangUp: func() {}, digests: sidecar.NewDigests(), proof: proof{settle: settleTime}}
	d.dial = func(ctx context.Context, so sidecar.Options) (tunnels.Tunnel, error) { return sidecar.Dial(ctx, so) }
	d.closing, d.close = context.WithCancel(context.Background())
	d.pods = newPods(o.Namespace, client, o.Log)
	d.pods.gone = d.tunnel.Drop
	d.lookup = lookup{o: d.o, client: client, claims: d.claims, pods: d.pods}
	d.labels = labelQueue{lookup: d.lookup, closing: d.closing, running: &d.running}
	d.running.Go(func() { d.pods.run(d.closing) })
	return d, nil
}

// complete checks options and fills in what may be left out.
func complete(o *Options) error {
	if problems := validation.IsDNS1123Label(o.Namespace); len(problems) > 0 {
		return fmt.Errorf("namespace %.80q: %s", o.Namespace, problems[0])
	}
	if o.BridgeImage == "" {
		return errors.New("no image of the sidecar is named")
	}
	if o.Authority == nil {
		return errors.New("there is no authority for the certificates of pods")
	}
	if o.RuntimeClasses == nil {
		o.RuntimeClasses = map[string]string{"runc": "", "runsc": "gvisor"}
	}
	if o.OOMEndsSandbox == nil {
		o.OOMEndsSandbox = []string{"runc", "runsc"}
	}
	for _, share := range []struct {
		name     string
		value    *float64
		default_ float64
	}{{"CPU", &o.CPUShare, 0.1}, {"memory", &o.MemoryShare, 0.5}} {
		if *share.value == 0 {
			*share.value = share.default_
		}
		if *share.value < 0 || *share.value > 1 {
			return fmt.Errorf("a share of %v of the %s limit: want one above 0 and at most 1", *share.value, share.name)
		}
	}
	o.Pods.Labels, o.Pods.Annotations = maps.Clone(o.Pods.Labels), maps.Clone(o.Pods.Annotations)
	if err := o.Volumes.complete(); err != nil {
		return err
	}
	if o.Pods.PullPolicy == "" {
		o.Pods.PullPolicy = corev1.PullIfNotPresent
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = startTimeout
	}
	if o.ScheduleTimeout == 0 {
		o.ScheduleTimeout = scheduleTimeout
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Close ends the driver's watches, tunnels and connections. Sandboxes go on running.
func (d *Driver) Close() error {
	d.close()
	err := d.tunnel.Close()
	d.running.Wait()
	d.hangUp()
	return err
}

// notHere is the error for a sandbox that is not there.
func notHere(id sandbox.ID) error {
	return sandbox.Errorf(sandbox.NotFound, "there is no sandbox %s", id)
}
