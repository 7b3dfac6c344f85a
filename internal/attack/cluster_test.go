package attack

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// kubeconfig names the cluster of scripts/kubernetes.sh, which says what images it has. The tier "kubernetes" sets it; without it nothing
// is made in pods.
const kubeconfig = "SKERRY_TEST_KUBECONFIG"

// clusterTimeout bounds one request of a cluster.
const clusterTimeout = time.Minute

func needCluster(t testing.TB) {
	t.Helper()
	if os.Getenv(kubeconfig) == "" {
		t.Skipf("missing: a cluster (%s; `make e2e-kubernetes` starts one)", kubeconfig)
	}
}

// kubectl runs kubectl against the cluster, with objects on its stdin if any.
func kubectl(t testing.TB, objects string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clusterTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "kubectl", append([]string{"--kubeconfig", os.Getenv(kubeconfig)}, args...)...)
	cmd.Stdin = strings.NewReader(objects)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("kubectl %v: %v %s", args, err, complaints.String())
	}
	return strings.TrimSpace(string(out))
}

// objects are the ones that the chart makes for sandboxes; the server is a process of this machine.
const objects = `
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s, labels: {pod-security.kubernetes.io/enforce: restricted}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: sandboxes, namespace: %[1]s}
spec:
  podSelector: {}
  policyTypes: [Ingress, Egress]
  ingress: [{from: [{ipBlock: {cidr: %[2]s/32}}], ports: [{port: 7443, protocol: TCP}]}]
  egress: []
`

// namespace makes a namespace for sandboxes, takes it away after the test, and returns the settings of a server that uses it.
func namespace(t testing.TB) []string {
	t.Helper()
	api, err := url.Parse(kubectl(t, "", "config", "view", "--minify", "--output", "jsonpath={.clusters[0].cluster.server}"))
	must(t, err)
	way, err := net.Dial("udp", api.Host) // sends nothing
	must(t, err)
	defer way.Close()
	own, _, err := net.SplitHostPort(way.LocalAddr().String())
	must(t, err)
	name := fmt.Sprintf("skerry-attack-%d-%d", os.Getpid(), time.Now().UnixMilli())
	t.Cleanup(func() { kubectl(t, "", "delete", "namespace", name, "--wait=false") })
	kubectl(t, fmt.Sprintf(objects, name, own), "apply", "--filename", "-")
	return []string{
		"SKERRY_KUBERNETES_KUBECONFIG=" + os.Getenv(kubeconfig), "SKERRY_KUBERNETES_NAMESPACE=" + name,
		"SKERRY_KUBERNETES_BRIDGE_IMAGE=skerry/bridge:" + cmp.Or(os.Getenv("SKERRY_TEST_TAG"), "test"), "SKERRY_KUBERNETES_IMAGE_PULL_POLICY=Never",
	}
}
