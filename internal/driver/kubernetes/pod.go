package kubernetes

import (
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/platform/anchor"
	"github.com/skerry-sandbox/skerry/internal/platform/confine"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar"
)

// bridgeProgram is the path of the sidecar's program in its image.
const bridgeProgram = "/skerry-bridge"

// certificateDir is where only the sidecar finds its certificate.
const certificateDir = "/run/skerry-bridge"

// bridgeTime is how long the sidecar may take until it serves. Then the kubelet ends it, and starts it again.
const bridgeTime = "30s"

// lostNodeSeconds is how long a pod stays bound to a node that does not answer; the cluster's default is 300.
const lostNodeSeconds = 15

// sidecarThreads are those of the sidecar: it has the sandbox's uid, by which processes are counted.
const sidecarThreads = 32

// pod describes the whole pod of a sandbox: nothing in a Spec can take any of the hardening away.
func (o Options) pod(spec sandbox.Spec, runtimeClass string) (*corev1.Pod, error) {
	if spec.UID > math.MaxInt32 {
		return nil, sandbox.Errorf(sandbox.Invalid, "uid %d: Kubernetes knows none above %d", spec.UID, math.MaxInt32)
	}
	if err := checkTargets(spec); err != nil {
		return nil, err
	}
	for _, point := range spec.Loosen {
		if o.Seccomp == "" && strings.HasPrefix(string(point), "seccomp.") {
			return nil, sandbox.Errorf(sandbox.NotSupported, "%s cannot be loosened here: %s", point, noLooseFilter)
		}
	}
	annotations, err := o.podAnnotations(spec)
	if err != nil {
		return nil, err
	}
	r, err := hardening.FindRuntime(spec.Runtime)
	if err != nil {
		return nil, err
	}
	command, err := command(r, spec)
	if err != nil {
		return nil, err
	}
	uid := int64(spec.UID)
	onRootMismatch := corev1.FSGroupChangeOnRootMismatch
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: string(spec.ID), Namespace: o.Namespace, Labels: o.podLabels(spec.Labels), Annotations: annotations,
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: new(int64),
			AutomountServiceAccountToken:  new(bool),
			EnableServiceLinks:            new(bool),
			ShareProcessNamespace:         new(bool),
			ServiceAccountName:            o.Pods.ServiceAccount,
			PriorityClassName:             o.Pods.PriorityClass,
			Hostname:                      hardening.Hostname(spec),
			// There is nothing to resolve, and no server to ask. The kubelet wants a server named.
			DNSPolicy:    corev1.DNSNone,
			DNSConfig:    &corev1.PodDNSConfig{Nameservers: []string{"127.0.0.1"}},
			NodeSelector: o.nodeSelector(),
			Tolerations:  o.tolerations(),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), RunAsUser: &uid, RunAsGroup: &uid,
				FSGroup: &uid, FSGroupChangePolicy: &onRootMismatch, SeccompProfile: o.seccompProfile(),
			},
			Volumes:        volumes(spec),
			InitContainers: []corev1.Container{o.bridgeContainer(r)},
			Containers:     []corev1.Container{o.sandboxContainer(spec, command)},
		},
	}
	if runtimeClass != "" {
		pod.Spec.RuntimeClassName = &runtimeClass
	}
	if spec.Volume != nil {
		o.onVolume(pod, spec)
	}
	for _, name := range o.Pods.PullSecrets {
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	return pod, nil
}

func (o Options) podAnnotations(spec sandbox.Spec) (map[string]string, error) {
	out := maps.Clone(o.Pods.Annotations)
	if out == nil {
		out = make(map[string]string)
	}
	own, err := ownAnnotations(spec)
	if err != nil {
		return nil, err
	}
	maps.Copy(out, own)
	for name, text := range hardening.NewEtcFiles(spec, nil, nil) {
		out[etcAnnotation(name)] = string(text)
	}
	return out, nil
}

// command is what PID 1 is started as: a program that confines itself and then becomes skerry-sandboxd.
func command(r hardening.Runtime, spec sandbox.Spec) ([]string, error) {
	filter, err := hardening.SeccompFilter(r, spec.Loosen...)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the system call filter could not be made")
	}
	order := confine.Order{Rlimits: rlimits(r, spec), Env: hardening.Environment()}
	text, err := confine.Argument(order, filter)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the sandbox cannot be described")
	}
	out := []string{sandbox.DaemonPath, confine.Command, text, sandbox.DaemonPath}
	if r.OwnKernel {
		out = append(out, anchor.Argument)
	}
	return append(out, spec.Args...), nil
}

// rlimits are the resource limits of a sandbox's processes, that of their number among them: a pod has none that could
// be asked for. None of this process's own limits counts: the sandbox runs on another machine.
func rlimits(r hardening.Runtime, spec sandbox.Spec) map[int]uint64 {
	out := hardening.OwnRlimits(spec)
	out[unix.RLIMIT_NPROC] += sidecarThreads
	if !r.OwnKernel { // gVisor's lets no process set it
		out[unix.RLIMIT_SIGPENDING] = hardening.PendingSignals
	}
	return out
}

func (o Options) seccompProfile() *corev1.SeccompProfile {
	if o.Seccomp == "" {
		return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: &o.Seccomp}
}

// nodeSelector: the filter and the programs are for one kind of machine.
func (o Options) nodeSelector() map[string]string {
	out := map[string]string{corev1.LabelOSStable: "linux", corev1.LabelArchStable: runtime.GOARCH}
	maps.Copy(out, o.Pods.NodeSelector)
	return out
}

func (o Options) tolerations() []corev1.Toleration {
	out := slices.Clone(o.Pods.Tolerations)
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		out = append(out, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(lostNodeSeconds)),
		})
	}
	return out
}

// sealed is what all containers have in common, by the level "restricted" of Pod Security and beyond.
func sealed() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(bool),
		Privileged:               new(bool),
		ReadOnlyRootFilesystem:   new(true),
		RunAsNonRoot:             new(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

// bridgeContainer is the sidecar: a native one, which runs before the sandbox does and as long. Skerry-sandboxd is in its
// image, and it puts it where the sandbox finds it: each container that starts before the sandbox delays it.
func (o Options) bridgeContainer(r hardening.Runtime) corev1.Container {
	always := corev1.ContainerRestartPolicyAlways
	return corev1.Container{
		Name: containerBridge, Image: o.BridgeImage, ImagePullPolicy: o.Pods.PullPolicy,
		Command:       append([]string{bridgeProgram}, bridgeArguments(r)...),
		WorkingDir:    "/",
		RestartPolicy: &always,
		Ports:         []corev1.ContainerPort{{Name: "bridge", ContainerPort: sidecar.Port}},
		Resources:     o.bridgeResources(),
		VolumeMounts:  bridgeMounts(),
		// The kubelet starts the sandbox when this has ended well. A startup probe would say the same. But
		// the kubelet runs it once a second, and only after it has told the API server that the sidecar
		// runs.
		Lifecycle: &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{
			Command: []string{bridgeProgram, "--await=" + bridgeTime, "--run=" + sandbox.RunDir},
		}}},
		SecurityContext: sealed(),
	}
}

func (o Options) sandboxContainer(spec sandbox.Spec, command []string) corev1.Container {
	return corev1.Container{
		Name: containerSandbox, Image: spec.Image, ImagePullPolicy: o.Pods.PullPolicy,
		Command:         command,
		WorkingDir:      "/",
		Resources:       o.resources(spec.Limits),
		VolumeMounts:    sandboxMounts(),
		SecurityContext: sealed(),
	}
}

// diskShare is the part of the disk limit that is requested: few workspaces are full.
const diskShare = 0.1

func (o Options) resources(l sandbox.Limits) corev1.ResourceRequirements {
	disk := evictedAt(l) + 3*fetchedBytes
	return corev1.ResourceRequirements{
		Limits: corev1.ResourceList{
			corev1.ResourceMemory:           *resource.NewQuantity(l.MemoryBytes, resource.BinarySI),
			corev1.ResourceCPU:              *resource.NewMilliQuantity(l.CPUMillis, resource.DecimalSI),
			corev1.ResourceEphemeralStorage: *resource.NewQuantity(disk, resource.BinarySI),
		},
		Requests: corev1.ResourceList{
			corev1.ResourceMemory:           *resource.NewQuantity(share(l.MemoryBytes, o.MemoryShare), resource.BinarySI),
			corev1.ResourceCPU:              *resource.NewMilliQuantity(share(l.CPUMillis, o.CPUShare), resource.DecimalSI),
			corev1.ResourceEphemeralStorage: *resource.NewQuantity(share(l.DiskBytes, diskShare), resource.BinarySI),
		},
	}
}

func share(of int64, part float64) int64 { return max(int64(float64(of)*part), 1) }

// bridgeResources: the sidecar copies files and holds none of them.
func (o Options) bridgeResources() corev1.ResourceRequirements {
	limits := o.BridgeLimits
	if limits == nil {
		limits = corev1.ResourceList{
			corev1.ResourceMemory: resource.MustParse("128Mi"), corev1.ResourceCPU: resource.MustParse("500m"),
		}
	}
	limits = maps.Clone(limits)
	limits[corev1.ResourceEphemeralStorage] = resource.MustParse("64Mi")
	return corev1.ResourceRequirements{Limits: limits, Requests: corev1.ResourceList{
		corev1.ResourceMemory: resource.MustParse("16Mi"), corev1.ResourceCPU: resource.MustParse("10m"),
		corev1.ResourceEphemeralStorage: resource.MustParse("16Mi"),
	}}
}

// bridgeArguments tell the sidecar what it is for. Under a kernel of its own each container of a pod has its volumes for
// itself: the sandbox does not see the sidecar's sockets there.
func bridgeArguments(r hardening.Runtime) []string {
	out := []string{
		"--certs=" + certificateDir,
		fmt.Sprintf("--listen=:%d", sidecar.Port),
		"--run=" + sandbox.RunDir,
		"--daemon=" + bridgeFolder(volumeDaemon),
		"--mount=" + sandbox.UserDataDir + "=" + bridgeFolder(volumeUserData) + "/" + treeFolder + ":rw",
	}
	if r.OwnKernel {
		out = append(out, "--anchor")
	}
	for _, f := range fetched {
		out = append(out, "--mount="+f.dir+"="+bridgeFolder(f.volume)+"/"+treeFolder+":ro")
	}
	return out
}
