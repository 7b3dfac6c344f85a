package kubernetes

import (
	"encoding/json"
	"maps"
	"net"
	"net/url"
	"strings"
	"testing"
)

// dial is a program that connects to all of its arguments at once, each NAME=PROTOCOL:HOST:PORT. It says of
// each whether a server answered. A new pod has no network for a moment: with --patient it goes on for half
// a minute.
const dial = `
import concurrent.futures, json, socket, sys, time
question = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x0akubernetes\x07default\x03svc\x07cluster\x05local\x00\x00\x01\x00\x01"
def once(protocol, host, port):
    try:
        if protocol == "tcp":
            socket.create_connection((host, port), 5).close()
        else:
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            s.settimeout(5)
            s.connect((host, port))
            s.send(question)
            s.recv(512)
        return "reached"
    except OSError as e:
        return "not reached: " + (e.strerror or str(e))
def connect(target):
    protocol, host, port = target.split(":")
    until = time.time() + 30
    while True:
        said = once(protocol, host, int(port))
        if not patient or said == "reached" or time.time() > until:
            return said
        time.sleep(0.2)
patient = sys.argv[1] == "--patient"
targets = dict(a.split("=") for a in sys.argv[2:])
with concurrent.futures.ThreadPoolExecutor(len(targets)) as pool:
    print(json.dumps(dict(zip(targets, pool.map(connect, targets.values())))))
`

// targets are what code in a pod would look for, and what every pod without a policy reaches.
func (h *house) targets() map[string]string {
	h.t.Helper()
	at := func(namespace, kind, name, path string) string {
		h.t.Helper()
		return strings.TrimSpace(h.run("kubectl", "--namespace", namespace, "get", kind, name, "--output", "jsonpath="+path))
	}
	names, err := h.replicas()
	must(h.t, err)
	if len(names) == 0 {
		h.t.Fatal("no replica of the server is ready")
	}
	return map[string]string{
		"the API server":      "tcp:" + at("default", "service", "kubernetes", "{.spec.clusterIP}") + ":443",
		"another pod":         "tcp:" + at(h.namespace, "pod", "tools", "{.status.podIP}") + ":9000",
		"DNS":                 "udp:" + at("kube-system", "service", "kube-dns", "{.spec.clusterIP}") + ":53",
		"DNS by TCP":          "tcp:" + at("kube-system", "service", "kube-dns", "{.spec.clusterIP}") + ":53",
		"the server's API":    "tcp:" + at(h.namespace, "pod", names[0], "{.status.podIP}") + ":8080",
		"outside the cluster": "tcp:" + h.outside(),
	}
}

// outside listens at this machine's address on the way to the cluster: an address as those of the internet are, which answers.
func (h *house) outside() string {
	h.t.Helper()
	api, err := url.Parse(strings.TrimSpace(h.run("kubectl", "config", "view", "--minify", "--output", "jsonpath={.clusters[0].cluster.server}")))
	must(h.t, err)
	way, err := net.Dial("udp", api.Host) // sends nothing
	must(h.t, err)
	defer way.Close()
	own, _, err := net.SplitHostPort(way.LocalAddr().String())
	must(h.t, err)
	l, err := net.Listen("tcp", net.JoinHostPort(own, "0"))
	must(h.t, err)
	h.t.Cleanup(func() { l.Close() })
	go func() { // ends with the listener
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	return l.Addr().String()
}

func arguments(how string, targets map[string]string) []string {
	out := []string{"python3", "-c", dial, how}
	for name, target := range targets {
		out = append(out, name+"="+target)
	}
	return out
}

// said reads what dial said.
func said(t *testing.T, text string) map[string]string {
	t.Helper()
	out := map[string]string{}
	if i := strings.IndexByte(text, '{'); i < 0 || json.Unmarshal([]byte(text[i:]), &out) != nil {
		t.Fatalf("it says nothing of what it reached: %q", text)
	}
	return out
}

// fromFreePod dials from a pod for which there is no policy.
func (h *house) fromFreePod(how string, targets map[string]string) map[string]string {
	h.t.Helper()
	return said(h.t, h.kubectl(append([]string{"exec", "free", "--"}, arguments(how, targets)...)...))
}

// network shows connections that a pod without a policy makes and a sandbox cannot. It also shows those of
// the server that another pod cannot make.
func network(t *testing.T, h *house) {
	targets := h.targets()
	h.kubectl("wait", "--for=condition=Ready", "pod/free", "--timeout=2m")
	for name, got := range h.fromFreePod("--patient", targets) {
		if got != "reached" {
			t.Errorf("a pod without a policy does not reach %s, so that nothing is shown: %s", name, got)
		}
	}
	d := h.front().pick()
	for _, template := range h.templates() {
		thread := "network-" + template
		h.use(d, thread, template)
		h.ok(d, thread, "true") // the server comes in, to the sidecar
		pod := strings.TrimSpace(h.run("kubectl", "--namespace", h.namespace+"-boxes", "get", "pod", h.sandbox(d, thread), "--output", "jsonpath={.status.podIP}"))
		more := map[string]string{"the internet": "tcp:192.0.2.1:80", "the metadata of a cloud": "tcp:169.254.169.254:80"}
		maps.Copy(more, targets)
		r, err := h.exec(d, thread, "", map[string]any{"argv": arguments("--once", more)})
		if err != nil || r.Status != "exited" {
			t.Fatalf("in a sandbox of %s: %+v, %v", template, r, err)
		}
		for name, got := range said(t, r.Stdout) {
			t.Logf("a sandbox of %s to %s: %s", template, name, got)
			if got == "reached" {
				t.Errorf("a sandbox of %s reaches %s", template, name)
			}
		}
		in := h.fromFreePod("--once", map[string]string{"the sidecar": "tcp:" + pod + ":7443", "another pod": targets["another pod"]})
		if in["the sidecar"] == "reached" || in["another pod"] != "reached" {
			t.Errorf("a pod that is not the server: %v, want the other pod reached and the sidecar not", in)
		}
		h.ok(d, thread, "true")
	}
}
