package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
	corev1 "k8s.io/api/core/v1"
	psa "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/skerry-sandbox/skerry/internal/platform/confine"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar/pki"
)

var update = flag.Bool("update", false, "write the pods in testdata")

func testSpec(t testing.TB) sandbox.Spec {
	dir := t.TempDir()
	return sandbox.Spec{
		ID: "skerry-0123456789abcdef", Image: "skerry/base:1", Runtime: "runc", UID: 1_000_007, Daemon: "/daemon", Hostname: "skerry",
		Mounts: []sandbox.Mount{
			{Source: dir, Target: sandbox.UserDataDir},
			{Source: dir, Target: sandbox.SkillsDir, ReadOnly: true},
			{Source: dir, Target: sandbox.RunDir, ReadOnly: true},
		},
		Limits: sandbox.Limits{
			MemoryBytes: 1 << 30, CPUMillis: 1500, PIDs: 512, OpenFiles: 1024, FileBytes: 1 << 30, TmpBytes: 256 << 20, DiskBytes: 2 << 30,
		},
		Labels: map[string]string{sandbox.LabelTenant: "acme", sandbox.LabelUser: "ä@b = c"},
	}
}

func testOptions(t testing.TB) Options {
	authority, err := pki.Open(context.Background(), t.TempDir()+"/authority")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Namespace: "sandboxes", BridgeImage: "skerry/bridge:1", Authority: authority}
	if err := complete(&o); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestPods: what the cluster is asked for, whole, is what testdata holds (go test -update writes it). The filter is left
// out: it is asserted by its effect.
func TestPods(t *testing.T) {
	for name, c := range map[string]struct {
		options func(*Options)
		spec    func(*sandbox.Spec)
		class   string
	}{
		"plain": {},
		"volume": {
			options: func(o *Options) { o.Volumes.StorageClass = "fast" },
			spec:    func(s *sandbox.Spec) { s.Volume = &sandbox.Volume{Tenant: "acme", User: "ä@b = c", Thread: "t"} },
		},
		"gvisor": {spec: func(s *sandbox.Spec) { s.Runtime, s.Args = "runsc", []string{"toolserver"} }, class: "gvisor"},
		"options": {
			options: func(o *Options) {
				o.Pods.PullPolicy, o.Pods.PullSecrets, o.Seccomp = corev1.PullNever, []string{"registry"}, "profiles/strict.json"
				o.CPUShare, o.MemoryShare = 1, 1
				o.Pods.NodeSelector, o.Pods.PriorityClass, o.Pods.ServiceAccount = map[string]string{"pool": "sandboxes"}, "low", "sandbox"
				o.Pods.Tolerations = []corev1.Toleration{{Key: "sandboxes", Operator: corev1.TolerationOpExists}}
				o.Pods.Labels, o.Pods.Annotations = map[string]string{"team": "a"}, map[string]string{"note": "b"}
			},
			spec: func(s *sandbox.Spec) {
				s.Loosen = []sandbox.Loosening{sandbox.LoosenShm, sandbox.LoosenPtrace}
				s.Args = []string{sandbox.LoosenArgument(sandbox.LoosenPtrace)}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, spec := testOptions(t), testSpec(t)
			if c.options != nil {
				c.options(&o)
			}
			if c.spec != nil {
				c.spec(&spec)
			}
			pod, err := o.pod(spec, c.class)
			if err != nil {
				t.Fatal(err)
			}
			restricted(t, pod)
			var order confine.Order
			command := pod.Spec.Containers[0].Command
			if err := json.Unmarshal([]byte(command[2]), &order); err != nil || len(order.Filter) < 100 {
				t.Fatalf("the order is %q: %v", command[2], err)
			}
			order.Filter = nil
			rest, err := json.Marshal(order)
			if err != nil {
				t.Fatal(err)
			}
			command[2] = string(rest)
			got := asYAML(t, pod)
			file := "testdata/" + name + ".yaml"
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil || string(want) != string(got) {
				t.Errorf("the pod is not that of %s (%v; go test -update writes it):\n%s", file, err, got)
			}
		})
	}
}

// asYAML writes a pod with the names that JSON has for it.
func asYAML(t *testing.T, pod *corev1.Pod) []byte {
	t.Helper()
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		t.Fatal(err)
	}
	out, err := yaml.Marshal(plain)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// restricted holds a pod against the strictest level of Pod Security, as the API server would.
func restricted(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range evaluator.EvaluatePod(psa.LevelVersion{Level: psa.LevelRestricted, Version: psa.LatestVersion()}, &pod.ObjectMeta, &pod.Spec) {
		if !r.Allowed {
			t.Errorf("Pod Security refuses the pod: %s (%s)", r.ForbiddenReason, r.ForbiddenDetail)
		}
	}
}

// TestBarePod: what only copies files has the sidecar alone, which sees the thread's folder and nothing else of the volume.
func TestBarePod(t *testing.T) {
	for _, runtime := range []string{"runc", "runsc"} {
		spec := testSpec(t)
		spec.Runtime, spec.Mounts = runtime, spec.Mounts[:1]
		spec.Volume = &sandbox.Volume{Tenant: "acme", User: "u", Thread: "t", Ahead: true, Bare: true}
		pod, err := testOptions(t).pod(spec, "")
		if err != nil {
			t.Fatal(err)
		}
		restricted(t, pod)
		c := pod.Spec.Containers[0]
		if len(pod.Spec.InitContainers) > 0 || len(pod.Spec.Containers) != 1 || c.Image != "skerry/bridge:1" || c.Name != containerSandbox {
			t.Errorf("%s: the containers are %+v and %+v", runtime, pod.Spec.InitContainers, pod.Spec.Containers)
		}
		want := []string{
			bridgeProgram, "--certs=/run/skerry-bridge", "--listen=:7443", "--run=/run/skerry", "--mount=/mnt/user-data=/volumes/user-data/tree:kept",
		}
		if !slices.Equal(c.Command, want) {
			t.Errorf("%s: the command is %q", runtime, c.Command)
		}
		if c.Lifecycle != nil || c.StartupProbe != nil { // a pod that runs once would be ended for not serving
			t.Errorf("%s: something waits until it serves", runtime)
		}
		if len(pod.Spec.Volumes) != 3 || len(c.VolumeMounts) != 3 || pod.Spec.ActiveDeadlineSeconds == nil {
			t.Errorf("%s: %+v", runtime, pod.Spec)
		}
		for _, m := range c.VolumeMounts {
			if m.Name == volumeUserData && m.SubPath != hashed("t") {
				t.Errorf("%s: it sees %q of the volume", runtime, m.SubPath)
			}
		}
	}
}

// TestOneNode: a volume that several nodes can have holds its user's pods to none.
func TestOneNode(t *testing.T) {
	for mode, held := range map[corev1.PersistentVolumeAccessMode]bool{corev1.ReadWriteOnce: true, corev1.ReadWriteMany: false} {
		o, spec := testOptions(t), testSpec(t)
		o.Volumes.AccessMode, spec.Volume = mode, &sandbox.Volume{Tenant: "acme", User: "u", Thread: "t"}
		pod, err := o.pod(spec, "")
		if err != nil {
			t.Fatal(err)
		}
		if (pod.Spec.Affinity != nil) != held {
			t.Errorf("%s: %+v", mode, pod.Spec.Affinity)
		}
	}
}

// TestOnlyTheSidecar: the certificate is in no other container, and the sandbox writes only where it may. No
// process of the one container sees those of the other.
func TestOnlyTheSidecar(t *testing.T) {
	pod, err := testOptions(t).pod(testSpec(t), "")
	if err != nil {
		t.Fatal(err)
	}
	writable := map[string]bool{
		"/tmp": true, sandbox.HomeDir: true, "/dev/shm": true,
		sandbox.WorkspaceDir: true, sandbox.UploadsDir: true, sandbox.OutputsDir: true,
	}
	for _, m := range pod.Spec.Containers[0].VolumeMounts {
		if m.Name == volumeCertificate {
			t.Error("the sandbox has the certificate")
		}
		if m.ReadOnly == writable[m.MountPath] {
			t.Errorf("%s is read-only: %v", m.MountPath, m.ReadOnly)
		}
		delete(writable, m.MountPath)
	}
	if len(writable) > 0 {
		t.Errorf("nothing is mounted at %v", writable)
	}
	// The sandbox's program is put in its place by the sidecar: the kubelet must not start the one before the other serves.
	if hook := pod.Spec.InitContainers[0].Lifecycle; hook == nil || hook.PostStart == nil || !strings.HasPrefix(strings.Join(hook.PostStart.Exec.Command, " "), bridgeProgram+" --await=") {
		t.Errorf("nothing waits for the sidecar: %+v", hook)
	}
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		if len(c.Env) > 0 || len(c.EnvFrom) > 0 {
			t.Errorf("%s has an environment: %v %v", c.Name, c.Env, c.EnvFrom)
		}
	}
	if pod.Spec.HostNetwork || pod.Spec.HostPID || pod.Spec.HostIPC || *pod.Spec.ShareProcessNamespace || *pod.Spec.AutomountServiceAccountToken {
		t.Error("the pod has something of the host, or of its neighbours")
	}
}

func TestPodRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*sandbox.Spec)
		want   sandbox.Kind
	}{
		"uid":     {func(s *sandbox.Spec) { s.UID = 1 << 31 }, sandbox.Invalid},
		"mount":   {func(s *sandbox.Spec) { s.Mounts[0].Target = "/srv/data" }, sandbox.NotSupported},
		"filter":  {func(s *sandbox.Spec) { s.Loosen = []sandbox.Loosening{sandbox.LoosenPtrace} }, sandbox.NotSupported},
		"runtime": {func(s *sandbox.Spec) { s.Runtime = "kata" }, sandbox.NotSupported},
	} {
		spec := testSpec(t)
		c.change(&spec)
		if _, err := testOptions(t).pod(spec, ""); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

func TestOptionsRefused(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"namespace":    func(o *Options) { o.Namespace = "No Such" },
		"image":        func(o *Options) { o.BridgeImage = "" },
		"authority":    func(o *Options) { o.Authority = nil },
		"2 Ti":         func(o *Options) { o.Volumes.Size = "2 Ti" },
		"Many":         func(o *Options) { o.Volumes.AccessMode = corev1.ReadWriteOncePod },
		"memory limit": func(o *Options) { o.MemoryShare = 1.5 },
	} {
		o := testOptions(t)
		change(&o)
		if err := complete(&o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
