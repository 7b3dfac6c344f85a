package kubernetes_test

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/drivertest"
	"github.com/skerry-sandbox/skerry/internal/driver/drivertest/probewire"
	"github.com/skerry-sandbox/skerry/internal/driver/kubernetes"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar"
	"github.com/skerry-sandbox/skerry/internal/sidecar/pki"
)

// These tests run on a real cluster whose one node is this machine, where the tier asks for it:
//
//	SKERRY_TEST_KUBECONFIG    says where it is; without it they are skipped
//	SKERRY_K8S_IMPORT         is a command that takes an archive of "docker save" from its standard input to the node
//	SKERRY_TEST_KUBE_IMAGE    is an image for sandboxes that the node has; default skerry/base:latest
//	SKERRY_TEST_KUBE_HOST     is the address by which this process reaches pods; default: that of the way to the API server
const (
	envConfig = "SKERRY_TEST_KUBECONFIG"
	envImport = "SKERRY_K8S_IMPORT"
	envImage  = "SKERRY_TEST_KUBE_IMAGE"
	envHost   = "SKERRY_TEST_KUBE_HOST"
)

// testBridge is the image of the sidecar with the program of drivertest in the place of skerry-sandboxd. Two clones that use one cluster have tags of
// their own.
var testBridge = "skerry/bridge:" + cmp.Or(os.Getenv("SKERRY_TEST_TAG"), "test") + "-drivertest"

func TestMain(m *testing.M) { drivertest.Main(m) }

// cluster is a namespace of the test's own.
type cluster struct {
	config    *rest.Config
	client    kubernetes.Clientset
	namespace string
	authority *pki.Authority
	image     string
	host      string
}

func ctx(t testing.TB) context.Context {
	c, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return c
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newCluster makes a namespace that has the strictest Pod Security and the policy of the chart.
func newCluster(t testing.TB) *cluster {
	t.Helper()
	file := os.Getenv(envConfig)
	if file == "" {
		t.Skipf("no cluster: %s names no kubeconfig", envConfig)
	}
	config, _, err := kubernetes.Connect(file)
	must(t, err)
	c := &cluster{config: config, image: os.Getenv(envImage), host: os.Getenv(envHost)}
	if c.image == "" {
		c.image = "skerry/base:latest"
	}
	if c.host == "" {
		c.host = wayTo(t, config.Host)
	}
	http, err := rest.HTTPClientFor(config)
	must(t, err)
	t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(http.Transport) })
	c.client, err = kubernetes.NewClientset(config, http)
	must(t, err)
	c.authority, err = pki.Open(ctx(t), t.TempDir()+"/authority")
	must(t, err)
	made, err := c.client.Core.Namespaces().Create(ctx(t), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "driver-test-",
		Labels:       map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}, metav1.CreateOptions{})
	must(t, err)
	c.namespace = made.Name
	t.Cleanup(func() {
		must(t, c.client.Core.Namespaces().Delete(ctx(t), c.namespace, metav1.DeleteOptions{}))
	})
	c.allow(t)
	c.volumes(t)
	importBridge(t)
	return c
}

// userVolumes are the volumes of users that a cluster of these tests has.
const userVolumes = 4

// volumes makes them: folders of the node's, which is this machine, in a class named as the namespace. Only a pod with the
// right group can write there.
func (c *cluster) volumes(t testing.TB) {
	t.Helper()
	nodes, err := c.client.Core.Nodes().List(ctx(t), metav1.ListOptions{})
	must(t, err)
	for i := range userVolumes {
		dir, err := os.MkdirTemp("", "volume")
		must(t, err)
		pv := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", c.namespace, i)},
			Spec: corev1.PersistentVolumeSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: c.namespace,
				Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("20Gi")},
				PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: dir}},
				NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{
						Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{nodes.Items[0].Labels[corev1.LabelHostname]},
					}},
				}}}},
			},
		}
		_, err = c.client.Core.PersistentVolumes().Create(ctx(t), pv, metav1.CreateOptions{})
		must(t, err)
		t.Cleanup(func() {
			must(t, c.client.Core.PersistentVolumes().Delete(ctx(t), pv.Name, metav1.DeleteOptions{}))
			must(t, os.RemoveAll(dir))
		})
	}
}

// wayTo returns this machine's address on the way to a URL's host.
func wayTo(t testing.TB, url string) string {
	t.Helper()
	_, hostPort, _ := strings.Cut(url, "://")
	conn, err := net.Dial("udp", hostPort)
	must(t, err)
	defer conn.Close() //nolint:errcheck // nothing was sent
	host, _, err := net.SplitHostPort(conn.LocalAddr().String())
	must(t, err)
	return host
}

// allow closes the namespace but for this process to the sidecar, as the chart does for the server.
func (c *cluster) allow(t testing.TB) {
	t.Helper()
	tcp, port := corev1.ProtocolTCP, intstr.FromInt32(sidecar.Port)
	_, err := c.client.Networking.NetworkPolicies(c.namespace).Create(ctx(t), &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "sandboxes"},
		Spec: networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{
				From:  []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: c.host + "/32"}}},
				Ports: []networkingv1.NetworkPolicyPort{{Protocol: &tcp, Port: &port}},
			}},
		},
	}, metav1.CreateOptions{})
	must(t, err)
}

var bridge struct {
	once sync.Once
	err  error
}

// importBridge builds the image of the sidecar and loads it on the node, once a test process.
func importBridge(t testing.TB) {
	t.Helper()
	bridge.once.Do(func() {
		dir := t.TempDir()
		cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", dir+"/skerry-bridge", "../../../cmd/skerry-bridge")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			bridge.err = fmt.Errorf("build the sidecar: %w\n%s", err, out)
			return
		}
		var archive []byte
		archive, bridge.err = imageOf(testBridge, map[string]string{
			"skerry-bridge": dir + "/skerry-bridge", filepath.Base(sandbox.DaemonPath): drivertest.Program(t),
		})
		if bridge.err != nil {
			return
		}
		command := os.Getenv(envImport)
		if command == "" {
			bridge.err = fmt.Errorf("%s names no command that imports an image", envImport)
			return
		}
		cmd = exec.Command("sh", "-c", command)
		cmd.Stdin = bytes.NewReader(archive)
		if out, err := cmd.CombinedOutput(); err != nil {
			bridge.err = fmt.Errorf("import the image of the sidecar: %w\n%s", err, out)
		}
	})
	must(t, bridge.err)
}

// imageOf makes the archive of an image that holds these programs and nothing else.
func imageOf(ref string, programs map[string]string) ([]byte, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for name, path := range programs {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux", "config": map[string]any{},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer.Bytes()))}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{ref}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w = tar.NewWriter(&out)
	for _, f := range []struct {
		name string
		data []byte
	}{{"config.json", config}, {"layer.tar", layer.Bytes()}, {"manifest.json", manifest}} {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.data))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}

func (c *cluster) options(t testing.TB) kubernetes.Options {
	return kubernetes.Options{
		Config: c.config, Namespace: c.namespace, Authority: c.authority, BridgeImage: testBridge,
		Pods:     kubernetes.PodOptions{PullPolicy: corev1.PullNever},
		Volumes:  kubernetes.VolumeOptions{StorageClass: c.namespace},
		CPUShare: 0.01, MemoryShare: 0.1, // many sandboxes on a small node
		ScheduleTimeout: 5 * time.Second,
		OOMEndsSandbox:  oomEnds(),
		Log:             slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

// oomEnds: with cgroup version 2 the kubelet has the whole container ended.
func oomEnds() []string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return []string{"runc", "runsc"}
	}
	return []string{"runsc"}
}

func (c *cluster) driver(t testing.TB, change ...func(*kubernetes.Options)) *kubernetes.Driver {
	t.Helper()
	o := c.options(t)
	for _, f := range change {
		f(&o)
	}
	d, err := kubernetes.New(o)
	must(t, err)
	return d
}

func (c *cluster) harness(runtime string) drivertest.Harness {
	h := drivertest.Harness{
		New:          func(t testing.TB) driver.Driver { return c.driver(t) },
		Runtime:      runtime,
		Image:        c.image,
		UnknownImage: "skerry/no-such-image:1",
		PID:          c.pid,
		Kill: func(t testing.TB, id sandbox.ID) {
			t.Helper()
			must(t, syscall.Kill(c.pid(t, id), syscall.SIGKILL))
		},
		// The kubelet looks once a second, and tells the API server then.
		ReportWithin: 5 * time.Second,
	}
	h.Inside = c.inside
	if runtime == "runsc" { // all containers of a pod are in one kernel, which has the limits of all
		h.Anchored, h.ExtraCPUMillis = true, 500
	}
	return h
}

// pid returns this machine's number of PID 1 of a sandbox, or of the kernel that it runs on.
func (c *cluster) pid(t testing.TB, id sandbox.ID) int {
	t.Helper()
	pod, err := c.client.Core.Pods(c.namespace).Get(ctx(t), string(id), metav1.GetOptions{})
	must(t, err)
	own := pod.Spec.RuntimeClassName != nil
	mark := string(pod.UID)
	if !own {
		_, mark, _ = strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
	}
	if mark == "" { // it would be in every line
		t.Fatalf("sandbox %s has no container yet", id)
	}
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	must(t, err)
	best := 0
	for _, file := range groups {
		text, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(text, []byte(mark)) {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(file, "/")[2])
		must(t, err)
		cmdline, err := os.ReadFile(filepath.Dir(file) + "/cmdline")
		if err != nil || own != bytes.Contains(cmdline, []byte("runsc-sandbox")) {
			continue
		}
		if best == 0 || pid < best {
			best = pid
		}
	}
	if best == 0 {
		t.Fatalf("no process of sandbox %s is seen on this machine", id)
	}
	return best
}

// inside starts the program of the suite in the sandbox by the cluster's own means.
func (c *cluster) inside(t testing.TB, id sandbox.ID, req probewire.Request) probewire.Response {
	t.Helper()
	return c.insideOf(t, c.namespace, string(id), sandbox.DaemonPath, req)
}

// insideOf does it in the container "sandbox" of any pod that has the program.
func (c *cluster) insideOf(t testing.TB, namespace, pod, program string, req probewire.Request) probewire.Response {
	t.Helper()
	text, err := json.Marshal(req)
	must(t, err)
	call := c.client.Core.RESTClient().Post().Namespace(namespace).Resource("pods").Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: "sandbox", Command: []string{program, "child", string(text)}, Stdout: true, Stderr: true,
		}, scheme.ParameterCodec)
	exec, err := remotecommand.NewWebSocketExecutor(c.config, "GET", call.URL().String())
	must(t, err)
	var stdout, stderr bytes.Buffer
	must(t, exec.StreamWithContext(ctx(t), remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr}))
	var resp probewire.Response
	if err := json.Unmarshal(stdout.Bytes(), &resp); err != nil {
		t.Fatalf("no answer from inside: %q, %q", stdout.String(), stderr.String())
	}
	return resp
}

func TestConformance(t *testing.T) {
	c := newCluster(t)
	for _, runtime := range []string{"runc", "runsc"} {
		t.Run(runtime, func(t *testing.T) { drivertest.Run(t, c.harness(runtime)) })
	}
	t.Run("NoSecretsLeft", func(t *testing.T) {
		var left int
		for range 300 { // the cluster's collector takes its time
			list, err := c.client.Core.Secrets(c.namespace).List(ctx(t), metav1.ListOptions{})
			must(t, err)
			if left = len(list.Items); left == 0 {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Errorf("%d Secrets are left over", left)
	})
}
