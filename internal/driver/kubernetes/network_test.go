package kubernetes_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/skerry-sandbox/skerry/internal/driver/drivertest/probewire"
	"github.com/skerry-sandbox/skerry/internal/driver/kubernetes"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar"
)

// reached reports whether a connection came about. What the other side then said, or did not, does not matter.
func reached(resp probewire.Response) bool { return !strings.HasPrefix(resp.Err, "dial ") }

// TestNetwork: what hostile code looks for in a cluster, it does not reach; a pod beside it that has no policy does, so that it is the
// policy that holds.
func TestNetwork(t *testing.T) {
	c := newCluster(t)
	free, freeAddress := c.freePod(t)
	from := func(address string) probewire.Response {
		return c.insideOf(t, free.Namespace, free.Name, "/"+filepath.Base(sandbox.DaemonPath), probewire.Request{Op: probewire.OpDial, Path: "tcp", Data: address})
	}
	for _, runtime := range []string{"runc", "runsc"} {
		t.Run(runtime, func(t *testing.T) {
			one, two := c.sandboxOf(t, runtime), c.sandboxOf(t, runtime)
			for name, address := range c.targets(t) {
				for end := time.Now().Add(time.Minute); !reached(from(address)); time.Sleep(100 * time.Millisecond) { // a new pod's network takes its time
					if time.Now().After(end) {
						t.Fatalf("the control: %s at %s is not reached by a pod without a policy", name, address)
					}
				}
				if got := c.inside(t, one, probewire.Request{Op: probewire.OpDial, Path: "tcp", Data: address}); reached(got) {
					t.Errorf("a sandbox reaches %s at %s: %+v", name, address, got)
				}
			}
			// Only the server comes in, and no sandbox gets to another.
			neighbour := net.JoinHostPort(c.address(t, c.namespace, string(two)), strconv.Itoa(sidecar.Port))
			if got := from(neighbour); reached(got) {
				t.Errorf("a pod that is not the server reaches a sidecar: %+v", got)
			}
			for name, address := range map[string]string{
				"another sandbox": neighbour, "a pod without a policy": net.JoinHostPort(freeAddress, "80"), "the metadata of a cloud": "169.254.169.254:80", "the internet": "192.0.2.1:80",
			} {
				got := c.inside(t, one, probewire.Request{Op: probewire.OpDial, Path: "tcp", Data: address})
				if reached(got) {
					t.Errorf("a sandbox reaches %s: %+v", name, got)
				}
				if name == "a pod without a policy" && strings.Contains(got.Err, "refused") {
					t.Errorf("what a sandbox sends arrives at %s, which has nobody on the port: %s", name, got.Err)
				}
			}
			for _, path := range []string{"/var/run/secrets", "/run/secrets", "/run/skerry-bridge", "/volumes"} {
				if got := c.inside(t, one, probewire.Request{Op: probewire.OpList, Path: path}); len(got.Lines) > 0 {
					t.Errorf("a sandbox has %s: %v", path, got.Lines)
				}
			}
		})
	}
}

// targets are what every cluster has, and answers pods.
func (c *cluster) targets(t testing.TB) map[string]string {
	t.Helper()
	api, err := c.client.Core.Services("default").Get(ctx(t), "kubernetes", metav1.GetOptions{})
	must(t, err)
	dns, err := c.client.Core.Services("kube-system").Get(ctx(t), "kube-dns", metav1.GetOptions{})
	must(t, err)
	nodes, err := c.client.Core.Nodes().List(ctx(t), metav1.ListOptions{})
	must(t, err)
	node := ""
	for _, a := range nodes.Items[0].Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			node = a.Address
		}
	}
	out := map[string]string{
		"the API server":    net.JoinHostPort(api.Spec.ClusterIP, "443"),
		"the cluster's DNS": net.JoinHostPort(dns.Spec.ClusterIP, "53"),
		"the kubelet":       net.JoinHostPort(node, "10250"),
	}
	if u, err := url.Parse(c.config.Host); err == nil && net.ParseIP(u.Hostname()) != nil && !net.ParseIP(u.Hostname()).IsLoopback() {
		out["the API server's own address"] = u.Host
	}
	return out
}

// freePod starts a pod with the program of the suite in a namespace without any policy.
func (c *cluster) freePod(t testing.TB) (*corev1.Pod, string) {
	t.Helper()
	space, err := c.client.Core.Namespaces().Create(ctx(t), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "driver-test-free-"}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, c.client.Core.Namespaces().Delete(ctx(t), space.Name, metav1.DeleteOptions{})) })
	pod, err := c.client.Core.Pods(space.Name).Create(ctx(t), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "free"},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64), AutomountServiceAccountToken: new(bool),
			Containers: []corev1.Container{{
				Name: "sandbox", Image: testBridge, ImagePullPolicy: corev1.PullNever, Command: []string{"/" + filepath.Base(sandbox.DaemonPath), "serve"},
			}},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	return pod, c.address(t, space.Name, pod.Name)
}

// address waits for a pod that runs, and returns its address.
func (c *cluster) address(t testing.TB, namespace, pod string) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		p, err := c.client.Core.Pods(namespace).Get(ctx(t), pod, metav1.GetOptions{})
		must(t, err)
		if p.Status.Phase == corev1.PodRunning && p.Status.PodIP != "" {
			return p.Status.PodIP
		}
		if time.Now().After(end) {
			t.Fatalf("pod %s does not run: %+v", pod, p.Status)
		}
	}
}

// liar says of a namespace that it has a policy which it does not have: so a cluster looks whose network plugin ignores them.
type liar struct {
	next http.RoundTripper
	list []byte
}

func (l *liar) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/networkpolicies") {
		return l.next.RoundTrip(r)
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(l.list)), Request: r,
	}, nil
}

// TestPoliciesEnforced: a cluster that takes policies and does not enforce them gets no sandbox; this one does.
func TestPoliciesEnforced(t *testing.T) {
	c := newCluster(t)
	prove := func(o *kubernetes.Options) { o.ProveClosed = true }
	for _, runtime := range []string{"runc", "runsc"} {
		d, spec := c.driver(t, prove), c.spec(t, runtime)
		_, err := d.Create(ctx(t), spec)
		must(t, errors.Join(err, d.Remove(ctx(t), spec.ID), d.Close()))
	}
	policies := c.client.Networking.NetworkPolicies(c.namespace)
	list, err := policies.List(ctx(t), metav1.ListOptions{})
	must(t, err)
	list.TypeMeta = metav1.TypeMeta{Kind: "NetworkPolicyList", APIVersion: "networking.k8s.io/v1"}
	text, err := json.Marshal(list)
	must(t, err)
	must(t, policies.Delete(ctx(t), "sandboxes", metav1.DeleteOptions{}))
	var log bytes.Buffer
	d := c.driver(t, prove, func(o *kubernetes.Options) {
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		o.Config = rest.CopyConfig(o.Config)
		o.Config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &liar{next: next, list: text} })
		o.Config.ContentType, o.Config.AcceptContentTypes = "application/json", "application/json"
	})
	spec := c.spec(t, "runc")
	if _, err := d.Create(ctx(t), spec); err == nil || !strings.Contains(err.Error(), "does not enforce NetworkPolicies") {
		t.Errorf("a sandbox whose network is open: %v", err)
	}
	if caps, err := d.Capabilities(ctx(t)); err != nil || len(caps.Runtimes) > 0 {
		t.Errorf("after it: %+v, %v", caps, err)
	}
	must(t, d.Close())
	if !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "install a network plugin") {
		t.Errorf("the log: %s", &log)
	}
	if pods, err := c.client.Core.Pods(c.namespace).List(ctx(t), metav1.ListOptions{}); err != nil || len(pods.Items) > 0 {
		t.Errorf("left over: %d, %v", len(pods.Items), err)
	}
}
