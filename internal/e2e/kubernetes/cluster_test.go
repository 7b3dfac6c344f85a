// Package kubernetes tests the whole of Skerry on a real cluster: installed by its chart, with two replicas, from outside.
package kubernetes

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// kubeconfig names the cluster. It is that of scripts/kubernetes.sh, whose images are used, too.
const kubeconfig = "SKERRY_TEST_KUBECONFIG"

// killContainer is a command that kills the processes of a container on its node, whose id comes behind it. Without it pods
// are deleted.
const killContainer = "SKERRY_K8S_KILL"

// Deadlines. Nothing is timed: on a machine that is busy, a rollout takes minutes.
const (
	callTime    = 3 * time.Minute
	installTime = 10 * time.Minute
)

// house is an installation.
type house struct {
	t         *testing.T
	namespace string
	key       string
	skerry    string // the program
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// command runs a program, and returns what it says.
func (h *house) command(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), installTime+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+os.Getenv(kubeconfig))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (h *house) run(name string, args ...string) string {
	h.t.Helper()
	out, err := h.command(name, args...)
	if err != nil {
		h.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

func (h *house) kubectl(args ...string) string {
	h.t.Helper()
	return h.run("kubectl", append([]string{"--namespace", h.namespace}, args...)...)
}

// apply makes objects.
func (h *house) apply(text string) {
	h.t.Helper()
	file := filepath.Join(h.t.TempDir(), "objects.yaml")
	must(h.t, os.WriteFile(file, []byte(text), 0o600))
	h.kubectl("apply", "-f", file)
}

const volumes = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec:
  capacity: {storage: 5Gi}
  accessModes: [ReadWriteMany]
  storageClassName: ""
  persistentVolumeReclaimPolicy: Delete
  claimRef: {namespace: %[1]s, name: data}
  hostPath: {path: /var/tmp/%[1]s, type: DirectoryOrCreate}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteMany], storageClassName: "", volumeName: %[1]s, resources: {requests: {storage: 5Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: tools, labels: {app: tools}}
spec:
  automountServiceAccountToken: false
  containers:
    - {name: tools, image: %[2]s, imagePullPolicy: Never, args: [demo, tools, --listen, "0.0.0.0:9000"], securityContext: {runAsUser: 65534}}
---
apiVersion: v1
kind: Pod
metadata: {name: free}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 0
  containers:
    - {name: free, image: "skerry/base:latest", imagePullPolicy: Never, command: [sleep, infinity], securityContext: {runAsUser: 65534}}
---
apiVersion: v1
kind: Service
metadata: {name: tools}
spec: {selector: {app: tools}, ports: [{port: 9000}]}
`

const chart = "../../../deploy/helm/skerry"

// templates are one for each runtime.
const templates = `
  templates:
    base: |
      name: base
      description: with runc
      image: {docker: "skerry/base:latest"}
      runtime: runc
      languages: [typescript, javascript, python, bash]
      idle_timeout_s: 900
      limits: {memory: 512MiB, cpu: 2000m, pids: 256, open_files: 4096, file_size: 256MiB, tmp: 64MiB, disk: 512MiB}
    gvisor: |
      name: gvisor
      description: with gVisor
      image: {docker: "skerry/base:latest"}
      runtime: runsc
      languages: [typescript, javascript, python, bash]
      idle_timeout_s: 900
      limits: {memory: 512MiB, cpu: 2000m, pids: 256, open_files: 4096, file_size: 256MiB, tmp: 64MiB, disk: 512MiB}
`

// install installs the chart with two replicas on one volume, and removes it after the test.
func install(t *testing.T) *house {
	t.Helper()
	if os.Getenv(kubeconfig) == "" {
		t.Skipf("missing: a cluster (%s; `make e2e-kubernetes` starts one)", kubeconfig)
	}
	var raw [32]byte
	_, _ = rand.Read(raw[:])
	tag := os.Getenv("SKERRY_TEST_TAG")
	if tag == "" {
		tag = "test"
	}
	h := &house{t: t, namespace: fmt.Sprintf("skerry-e2e-%d", os.Getpid()), key: "sk_" + hex.EncodeToString(raw[:]), skerry: filepath.Join(t.TempDir(), "skerry")}
	build := exec.Command("go", "build", "-o", h.skerry, "../../../cmd/skerry")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	h.run("kubectl", "create", "namespace", h.namespace)
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := h.command("kubectl", "--namespace", h.namespace, "logs", "--selector", "app.kubernetes.io/component=server", "--tail", "200", "--prefix")
			t.Logf("logs:\n%s", out)
			out, _ = h.command("kubectl", "get", "pods,events", "--all-namespaces")
			t.Logf("pods and events:\n%.20000s", out)
		}
		_, _ = h.command("helm", "uninstall", "skerry", "--namespace", h.namespace, "--wait")
		_, _ = h.command("kubectl", "delete", "namespace", h.namespace, h.namespace+"-boxes", "--ignore-not-found", "--wait=false")
		_, _ = h.command("kubectl", "delete", "persistentvolume", h.namespace, "--wait=false")
	})
	h.apply(fmt.Sprintf(volumes, h.namespace, "skerry/server:"+tag))
	h.kubectl("create", "secret", "generic", "key", "--from-literal=key="+h.key)
	values := filepath.Join(t.TempDir(), "values.yaml")
	must(t, os.WriteFile(values, fmt.Appendf(nil, `
replicaCount: 2
image: {tag: %[2]s, pullPolicy: Never}
apiKey: {existingSecret: key}
config: {kubernetes: {cpu_percent: 2, memory_percent: 10}} # many sandboxes on a small node
sandboxes:
  namespace: %[1]s-boxes
  bridge: {tag: %[2]s}%[3]sextensions: {config: {mcpServers: {demo: {url: "http://tools:9000/mcp"}}}}
persistence: {existingClaim: data, accessMode: ReadWriteMany}
redis: {image: {repository: skerry/redis-test, tag: latest, pullPolicy: Never}, persistence: {enabled: false}}
resources: {requests: {cpu: 50m, memory: 64Mi}, limits: {memory: 512Mi}}
`, h.namespace, tag, templates), 0o600))
	h.run("helm", "install", "skerry", chart, "--namespace", h.namespace, "--values", values, "--wait", "--timeout", installTime.String())
	return h
}

// door is a way to one replica from outside.
type door struct {
	pod, url string
	forward  *exec.Cmd
}

// open forwards a port to a pod.
func (h *house) open(pod string) (*door, error) {
	cmd := exec.Command("kubectl", "--namespace", h.namespace, "port-forward", "pod/"+pod, ":8080")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+os.Getenv(kubeconfig))
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, fmt.Errorf("port-forward to %s: %w", pod, err)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	address := strings.Fields(strings.TrimPrefix(line, "Forwarding from "))[0]
	return &door{pod: pod, url: "http://" + address, forward: cmd}, nil
}

func (d *door) close() {
	_ = d.forward.Process.Kill()
	_ = d.forward.Wait()
}

// replicas are the pods of the server that a Service would send requests to.
func (h *house) replicas() ([]string, error) {
	out, err := h.command("kubectl", "--namespace", h.namespace, "get", "pods", "--selector", "app.kubernetes.io/component=server", "--output", "json")
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	var list struct {
		Items []struct {
			Metadata struct {
				Name              string
				DeletionTimestamp *time.Time
			}
			Status struct {
				Conditions []struct{ Type, Status string }
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return nil, err
	}
	var names []string
	for _, p := range list.Items {
		for _, c := range p.Status.Conditions {
			if c.Type == "Ready" && c.Status == "True" && p.Metadata.DeletionTimestamp == nil {
				names = append(names, p.Metadata.Name)
			}
		}
	}
	return names, nil
}

// front is a Service: it sends each request to a replica that is ready.
type front struct {
	h     *house
	mu    sync.Mutex
	doors map[string]*door
	open  []*door
	next  int
}

func (h *house) front() *front {
	h.t.Helper()
	f := &front{h: h, doors: map[string]*door{}}
	h.t.Cleanup(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, d := range f.doors {
			d.close()
		}
	})
	must(h.t, f.look())
	return f
}

func (f *front) look() error {
	names, err := f.h.replicas()
	if err != nil {
		return err
	}
	var open []*door
	for _, name := range names {
		f.mu.Lock()
		d := f.doors[name]
		f.mu.Unlock()
		if d == nil {
			if d, err = f.h.open(name); err != nil {
				continue // it has just gone
			}
		}
		open = append(open, d)
		f.mu.Lock()
		f.doors[name] = d
		f.mu.Unlock()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = open
	return nil
}

// watch looks for changes until stop is closed.
func (f *front) watch(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(300 * time.Millisecond):
			if err := f.look(); err != nil {
				f.h.t.Logf("replicas not listed: %v", err)
			}
		}
	}
}

func (f *front) pick() *door {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next++
	return f.open[f.next%len(f.open)]
}

type answer struct {
	status int
	body   []byte
}

type result struct {
	ExecID, Status, Stdout string
}

func (r *result) UnmarshalJSON(text []byte) error {
	var raw struct {
		ExecID string `json:"exec_id"`
		Status string `json:"status"`
		Stdout string `json:"stdout"`
	}
	err := json.Unmarshal(text, &raw)
	*r = result(raw)
	return err
}

func (h *house) request(d *door, method, path string, body any) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	raw, err := json.Marshal(body)
	if err != nil {
		return answer{}, err
	}
	var in io.Reader
	if body != nil {
		in = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, d.url+path, in)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+h.key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, text}, err
}

// exec runs a command and returns its result.
func (h *house) exec(d *door, thread, command string, more map[string]any) (result, error) {
	body := map[string]any{}
	if command != "" {
		body["command"] = command
	}
	for k, v := range more {
		body[k] = v
	}
	a, err := h.request(d, "POST", "/api/threads/"+thread+"/exec", body)
	var r result
	if err == nil && a.status != 200 {
		err = fmt.Errorf("%d %s", a.status, a.body)
	}
	if err == nil {
		err = json.Unmarshal(a.body, &r)
	}
	return r, err
}

// templates are those whose runtime the cluster has: without a RuntimeClass of that name there is no gVisor.
func (h *house) templates() []string {
	if _, err := h.command("kubectl", "get", "runtimeclass", "gvisor"); err != nil {
		h.t.Log("the cluster has no RuntimeClass gvisor: runc alone")
		return []string{"base"}
	}
	return []string{"base", "gvisor"}
}

// use has a thread be of a template.
func (h *house) use(d *door, thread, template string) {
	h.t.Helper()
	if a, err := h.request(d, "PUT", "/api/threads/"+thread+"/sandbox", map[string]any{"template": template}); err != nil || a.status/100 != 2 {
		h.t.Fatalf("template %s: %d %s %v", template, a.status, a.body, err)
	}
}

// sandbox is the name of a thread's pod.
func (h *house) sandbox(d *door, thread string) string {
	h.t.Helper()
	a, err := h.request(d, "GET", "/api/threads/"+thread, nil)
	must(h.t, err)
	var view struct{ Sandbox struct{ ID string } }
	must(h.t, json.Unmarshal(a.body, &view))
	return view.Sandbox.ID
}

func (h *house) ok(d *door, thread, command string) string {
	h.t.Helper()
	r, err := h.exec(d, thread, command, nil)
	if err != nil || r.Status != "exited" {
		h.t.Fatalf("%s: %+v, %v", command, r, err)
	}
	return r.Stdout
}
