package kubernetes_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skerry-sandbox/skerry/internal/driver/kubernetes"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

var sandboxes int

// spec describes a sandbox with the program of the suite.
func (c *cluster) spec(t testing.TB, runtime string) sandbox.Spec {
	t.Helper()
	base := t.TempDir()
	for _, dir := range []string{"run", "thread/workspace", "thread/uploads", "thread/outputs"} {
		must(t, os.MkdirAll(filepath.Join(base, dir), 0o755))
	}
	sandboxes++
	return sandbox.Spec{
		ID: sandbox.ID(fmt.Sprintf("skerry-%016x", time.Now().UnixNano())), Image: c.image, Runtime: runtime, UID: 1_100_000 + sandboxes,
		Daemon: sandbox.DaemonPath, Args: []string{"serve"}, Hostname: "one",
		Mounts: []sandbox.Mount{
			{Source: filepath.Join(base, "thread"), Target: sandbox.UserDataDir}, {Source: filepath.Join(base, "run"), Target: sandbox.RunDir, ReadOnly: true},
		},
		Limits: sandbox.Limits{
			MemoryBytes: 256 << 20, CPUMillis: 1000, PIDs: 64, OpenFiles: 256, FileBytes: 64 << 20, TmpBytes: 16 << 20, DiskBytes: 64 << 20,
		},
	}
}

// sandboxOf starts one.
func (c *cluster) sandboxOf(t testing.TB, runtime string) sandbox.ID {
	t.Helper()
	d, spec := c.driver(t), c.spec(t, runtime)
	_, err := d.Create(ctx(t), spec)
	t.Cleanup(func() { must(t, errors.Join(d.Remove(ctx(t), spec.ID), d.Close())) })
	must(t, err)
	return spec.ID
}

// BenchmarkStart: a sandbox, filled and attached, beside a pod of the same image that does nothing.
func BenchmarkStart(b *testing.B) {
	c := newCluster(b)
	for runtime, class := range map[string]string{"runc": "", "runsc": "gvisor"} {
		b.Run("pod/"+runtime, func(b *testing.B) {
			for b.Loop() {
				c.plainPod(b, class)
			}
		})
		d := c.driver(b)
		b.Run("sandbox/"+runtime, func(b *testing.B) {
			for b.Loop() {
				c.oneSandbox(b, d, runtime)
			}
		})
		must(b, d.Close())
	}
}

func (c *cluster) oneSandbox(b *testing.B, d *kubernetes.Driver, runtime string) {
	b.Helper()
	spec := c.spec(b, runtime)
	_, err := d.Create(ctx(b), spec)
	must(b, err)
	b.StopTimer()
	must(b, d.Remove(ctx(b), spec.ID))
	b.StartTimer()
}

func (c *cluster) plainPod(b *testing.B, class string) {
	b.Helper()
	sealed := &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(bool), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		RunAsNonRoot: new(true), RunAsUser: new(int64(1000)), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "plain-"},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64), AutomountServiceAccountToken: new(bool),
			Containers: []corev1.Container{{
				Name: "sandbox", Image: c.image, ImagePullPolicy: corev1.PullNever, Command: []string{"sleep", "600"}, SecurityContext: sealed,
			}},
		},
	}
	if class != "" {
		pod.Spec.RuntimeClassName = &class
	}
	pods := c.client.Core.Pods(c.namespace)
	made, err := pods.Create(ctx(b), pod, metav1.CreateOptions{})
	must(b, err)
	c.address(b, c.namespace, made.Name)
	b.StopTimer()
	must(b, pods.Delete(ctx(b), made.Name, metav1.DeleteOptions{}))
	b.StartTimer()
}
