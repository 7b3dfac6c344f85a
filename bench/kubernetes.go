package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/skerry-sandbox/skerry/sandbox-templates"
)

// podsWait is how many pods of a template with a pool wait for a thread.
const podsWait = 2

// podRuntimes are what pods are measured with, and what makes a plain pod use the same.
var podRuntimes = []struct{ name, overrides string }{
	{"runc", `{}`},
	{"runsc", `{"spec": {"runtimeClassName": "gvisor"}}`},
}

// cluster is what a run makes in the cluster that KUBECONFIG names: one namespace for sandboxes, closed as the chart closes it, and one
// for the pods of kubectl.
type cluster struct {
	ctx              context.Context
	sandboxes, plain string
	n                int    // numbers pods
	pod              string // the last of kubectl
}

// namespaces are the objects of a cluster.
const namespaces = `
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s, labels: {pod-security.kubernetes.io/enforce: restricted}}
---
apiVersion: v1
kind: Namespace
metadata: {name: %[2]s}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: sandboxes, namespace: %[1]s}
spec:
  podSelector: {}
  policyTypes: [Ingress, Egress]
  ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0}}], ports: [{port: bridge}]}]
`

// pods measures threads whose sandboxes are pods beside a pod that kubectl runs to its end, cold and where one waits, in one go.
func pods(ctx context.Context, b *bench) (err error) {
	if os.Getenv("KUBECONFIG") == "" {
		b.leave("kubernetes", "no cluster: KUBECONFIG is not set (scripts/kubernetes.sh starts one, and runs a command with it)")
		return nil
	}
	name := fmt.Sprintf("skerry-bench-%d", os.Getpid())
	c := &cluster{ctx: ctx, sandboxes: name + "-sandboxes", plain: name + "-plain"}
	if err := c.kubectl([]byte(fmt.Sprintf(namespaces, c.sandboxes, c.plain)), "apply", "--filename", "-"); err != nil {
		return err
	}
	defer func() {
		c.ctx = context.WithoutCancel(ctx)
		err = errors.Join(err, c.kubectl(nil, "delete", "namespace", c.sandboxes, c.plain, "--wait=false"))
	}()
	dir := filepath.Join(b.dir, "pods")
	if err := podTemplates(dir); err != nil {
		return err
	}
	s, err := b.serve("kubernetes", "kubernetes", "SKERRY_TEMPLATES="+dir, "SKERRY_KUBERNETES_KUBECONFIG="+os.Getenv("KUBECONFIG"),
		"SKERRY_KUBERNETES_NAMESPACE="+c.sandboxes, "SKERRY_KUBERNETES_BRIDGE_IMAGE="+b.bridge, "SKERRY_KUBERNETES_IMAGE_PULL_POLICY=Never",
		"SKERRY_KUBERNETES_CPU_PERCENT=1", "SKERRY_KUBERNETES_MEMORY_PERCENT=10") // small nodes have room for them
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	for _, r := range podRuntimes {
		if err := b.podsOf(c, &pool{server: s, ctx: ctx}, r.name, r.overrides); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
	}
	return nil
}

// podTemplates writes two templates for each runtime: of one some wait.
func podTemplates(dir string) error {
	base, err := sandboxtemplates.FS.ReadFile("base.yaml")
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	write := func(name, text string) error {
		return os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o644) //nolint:gosec // no secret
	}
	errs := []error{write("base", string(base))}
	for _, r := range podRuntimes {
		text := strings.Replace(string(base), "runtime: runc ", "runtime: "+r.name+" ", 1)
		errs = append(errs,
			write("cold-"+r.name, strings.Replace(text, "name: base", "name: cold-"+r.name, 1)),
			write("warm-"+r.name, strings.Replace(text, "name: base", "name: warm-"+r.name, 1)+fmt.Sprintf("\npool: {target: %d}\n", podsWait)))
	}
	return errors.Join(errs...)
}

// podsOf measures one runtime. What each leaves is cleared away before the next one's turn, and is not counted.
func (b *bench) podsOf(c *cluster, p *pool, runtime, overrides string) error {
	full := func() error { return p.waits("warm-"+runtime, podsWait) }
	if err := full(); err != nil {
		return err
	}
	thread := ""
	first := func(template string) func() error {
		return func() error {
			p.n++
			thread = fmt.Sprintf("%s-%d", template, p.n)
			p.uses(thread)
			_, err := p.post(http.MethodPut, "/api/threads/"+thread+"/sandbox", map[string]any{"template": template, "wait_s": 60})
			if err != nil {
				return err
			}
			return p.exec(thread, "true")
		}
	}
	claimed := func() error {
		warm, err := p.warm(thread)
		if err == nil && !warm {
			p.cold++
		}
		return errors.Join(err, p.drop(thread), full())
	}
	times, err := b.alternate("pods, "+runtime,
		side{name: "cold start", do: first("cold-" + runtime)}, side{name: "clear", do: func() error { return p.drop(thread) }},
		side{name: "kubectl run true", do: func() error { return c.plainPod(overrides, "jsonpath={.status.phase}=Succeeded", "true") }}, side{name: "clear", do: c.clear},
		side{name: "claim", do: first("warm-" + runtime)}, side{name: "clear", do: claimed},
		side{name: "kubectl run sleep", do: func() error { return c.plainPod(overrides, "condition=Ready", "sleep", "600") }}, side{name: "clear", do: c.clear})
	if err != nil {
		return err
	}
	note := ""
	if p.cold > 0 {
		note = fmt.Sprintf("%d of them were cold starts", p.cold)
	}
	cold, claim := sampled("cold start of a pod, "+runtime, times[0]), sampled("claim of a pod that waits, "+runtime, times[4])
	ended, ready := sampled("kubectl run true, until it succeeded", times[2]), sampled("kubectl run sleep, until it is ready", times[6])
	b.row("ms", cold, &ended, cost, bar{atMost: 1.3}, "")
	b.row("ms", cold, &ready, cost, bar{}, "")
	b.row("ms", claim, &ended, faster, bar{atLeast: 20}, note)
	return nil
}

// plainPod runs a pod with kubectl, and waits for what it comes to.
func (c *cluster) plainPod(overrides, until string, argv ...string) error {
	c.n++
	c.pod = fmt.Sprintf("plain-%d", c.n)
	err := c.kubectl(nil, append([]string{"run", c.pod, "--namespace", c.plain, "--image", baseImage, "--image-pull-policy", "Never",
		"--restart", "Never", "--overrides", overrides, "--command", "--"}, argv...)...)
	if err != nil {
		return err
	}
	return c.kubectl(nil, "wait", "pod/"+c.pod, "--namespace", c.plain, "--for", until, "--timeout", startTime.String())
}

// clear deletes the last such pod.
func (c *cluster) clear() error {
	return c.kubectl(nil, "delete", "pod", c.pod, "--namespace", c.plain, "--grace-period", "1")
}

// waits waits until so many sandboxes of a template do.
func (p *pool) waits(template string, n int) error {
	want, got := fmt.Sprintf(`skerry_pool_sandboxes{state="waiting",template=%q}`, template), ""
	full, err := await(p.ctx, fillTime, func() (bool, error) {
		raw, err := p.post(http.MethodGet, "/metrics", nil)
		for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
			if rest, ok := strings.CutPrefix(lines.Text(), want); ok {
				got = strings.TrimSpace(rest)
			}
		}
		return got == fmt.Sprint(n), err
	})
	if err == nil && !full {
		err = fmt.Errorf("%q of %d sandboxes of %s wait after %v", got, n, template, fillTime)
	}
	return err
}

// kubectl runs it with a text on its standard input.
func (c *cluster) kubectl(in []byte, args ...string) error {
	ctx, cancel := context.WithTimeout(c.ctx, startTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "kubectl", args...)
	cmd.Stdin = bytes.NewReader(in)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w: %.500s", args[0], err, out)
	}
	return nil
}
