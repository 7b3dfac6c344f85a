package helm

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/template"
	sandboxtemplates "github.com/skerry-sandbox/skerry/sandbox-templates"
)

func TestGolden(t *testing.T) {
	for _, name := range cases {
		same(t, filepath.Join("testdata", name+".golden.yaml"), rendered(t, name))
	}
}

func TestLint(t *testing.T) {
	for _, name := range cases {
		out, err := exec.CommandContext(t.Context(), tool(t, "helm"), "lint", "--strict", "--kube-version", kubernetes[1], chart, "-f", valuesOf(name)).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %s", name, out)
		}
	}
}

// TestMistakes: what cannot work is refused in one sentence.
func TestMistakes(t *testing.T) {
	base := []string{"--set", "apiKey.existingSecret=k"}
	for name, c := range map[string]struct {
		set  string // after base, with commas between
		says string
	}{
		"replicas of one volume":   {"replicaCount=3", "3 replicas share one volume, which persistence.accessMode ReadWriteOnce does not let them: set persistence.accessMode to ReadWriteMany"},
		"more later":               {"autoscaling.enabled=true", "6 replicas share one volume"},
		"fewer than the fewest":    {"autoscaling.enabled=true,autoscaling.minReplicas=7,persistence.accessMode=ReadWriteMany", "autoscaling.minReplicas is greater than autoscaling.maxReplicas"},
		"no key":                   {"apiKey.existingSecret=", "apiKey.existingSecret is empty: no client could call the server"},
		"no Redis":                 {"redis.deploy=false", "redis.external.existingSecret is empty"},
		"two Redis":                {"redis.external.existingSecret=r", "exclude each other"},
		"open Redis":               {"networkPolicy.enabled=false", "every pod of the cluster could make itself an administrator's key"},
		"two files":                {"extensions.existingSecret=e,extensions.config.mcpServers.x.command=y", "extensions.config and extensions.existingSecret exclude each other"},
		"its own namespace":        {"sandboxes.namespace=skerry", "set sandboxes.createNamespace to false"},
		"no issuer":                {"tls.certManager.enabled=true", "tls.certManager.issuerRef.name is empty"},
		"no host":                  {"ingress.enabled=true", "ingress.host is empty"},
		"no gateway":               {"gateway.enabled=true", "gateway.parentRefs is empty"},
		"what the chart sets":      {"config.listen=127.0.0.1:1", "config.listen is set by the chart"},
		"what it sets in a part":   {"config.kubernetes.namespace=x", "config.kubernetes.namespace is set by the chart"},
		"no such value":            {"replicas=2", "additional properties 'replicas' not allowed"},
		"no such value, deeper":    {"redis.external.url=redis://x", "additional properties 'url' not allowed"},
		"a text for a number":      {"replicaCount=two", "got string, want integer"},
		"no way to mount a volume": {"persistence.accessMode=ReadOnlyMany", "must be one of"},
	} {
		out, err := render(t, append(slices.Clone(base), "--set", c.set)...)
		if err == nil || !strings.Contains(out, c.says) {
			t.Errorf("%s: %v, %s, want %q", name, err, out, c.says)
		}
	}
}

// TestConfined: the server has the capabilities that it needs and no other, the test's pod and Redis none.
func TestConfined(t *testing.T) {
	for _, name := range cases {
		for _, o := range objects(t, rendered(t, name)) {
			spec := at(o, "spec")
			if o["kind"] != "Pod" {
				spec = at(o, "spec", "template", "spec")
			}
			for _, kind := range []string{"initContainers", "containers"} {
				list, _ := at(spec, kind).([]any)
				for i := range list {
					sc, _ := at(list, i, "securityContext").(map[string]any)
					add, _ := json.Marshal(at(sc, "capabilities", "add"))
					want := "null"
					if at(list, i, "name") == "server" {
						want = `["CHOWN","DAC_OVERRIDE","FOWNER"]`
					} else if at(spec, "securityContext", "runAsNonRoot") != true {
						t.Errorf("%s: %s may be root", name, at(list, i, "name"))
					}
					drop, _ := json.Marshal(at(sc, "capabilities", "drop"))
					if string(add) != want || string(drop) != `["ALL"]` || sc["readOnlyRootFilesystem"] != true || sc["allowPrivilegeEscalation"] != false ||
						at(spec, "securityContext", "seccompProfile", "type") != "RuntimeDefault" {
						t.Errorf("%s: %s is not confined: %v", name, at(list, i, "name"), sc)
					}
				}
			}
		}
	}
}

// TestImages: images.txt names every image of an installation, those of the built-in templates included.
func TestImages(t *testing.T) {
	var all []string
	image := regexp.MustCompile(`(?m)^\s*(?:- )?(?:image|bridge_image): (\S+)$`)
	for _, m := range image.FindAllStringSubmatch(rendered(t, "trial"), -1) {
		all = append(all, m[1])
	}
	list, err := template.Load(sandboxtemplates.FS)
	if err != nil {
		t.Fatal(err)
	}
	for _, tmpl := range list {
		if name, ok := tmpl.ImageFor(template.InCluster, ""); ok {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if len(all) < 5 {
		t.Fatalf("only %v", all)
	}
	same(t, chart+"/images.txt", strings.Join(all, "\n")+"\n")
}

// TestDashboard: docs/metrics.md has every metric of the dashboard, and the dashboard has each that is worth a look.
func TestDashboard(t *testing.T) {
	out, err := render(t, "--set", "apiKey.existingSecret=k,metrics.dashboard.enabled=true")
	if err != nil {
		t.Fatal(out)
	}
	text, _ := at(object(t, out, "ConfigMap", "skerry-dashboard"), "data", "skerry.json").(string)
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(text), &board); err != nil || len(board.Panels) < 8 {
		t.Fatalf("%d panels, %v", len(board.Panels), err)
	}
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(skerry_[a-z_]+)` \\| (histogram)?").FindAllStringSubmatch(read(t, "../../docs/metrics.md"), -1) {
		if documented[m[1]] = true; m[2] != "" {
			documented[m[1]+"_bucket"], documented[m[1]+"_count"], documented[m[1]+"_sum"] = true, true, true
		}
	}
	used := regexp.MustCompile(`\bskerry_[a-z_]+`)
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			names := used.FindAllString(target.Expr, -1)
			if len(names) == 0 {
				t.Errorf("%s: %q has no metric of ours", p.Title, target.Expr)
			}
			for _, n := range names {
				if !documented[n] {
					t.Errorf("%s: there is no metric %s", p.Title, n)
				}
			}
		}
	}
}

// kubernetes are the versions that the renderings are checked against: the oldest that the chart takes, the newest, and one between.
var kubernetes = []string{"v1.31.14", "v1.34.4", "v1.36.3"}

// TestKubeconform: what is rendered is what Kubernetes' API takes. The schemas are those of Kubernetes' own module, so that nothing else
// has to be fetched; kinds of others (cert-manager, Gateway API, Prometheus) are not in there.
func TestKubeconform(t *testing.T) {
	program := tool(t, "kubeconform")
	for _, version := range kubernetes {
		schemas := schemasOf(t, version)
		for _, name := range cases {
			cmd := exec.CommandContext(t.Context(), program, "-strict", "-summary", "-kubernetes-version", strings.TrimPrefix(version, "v"),
				"-schema-location", schemas+"/{{ .ResourceKind }}{{ .KindSuffix }}.json", "-skip", "HTTPRoute,Certificate,ServiceMonitor")
			cmd.Stdin = strings.NewReader(rendered(t, name))
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "Invalid: 0, Errors: 0") || strings.Contains(string(out), "Valid: 0") {
				t.Errorf("%s, Kubernetes %s: %v\n%s", name, version, err, out)
			}
		}
	}
}

// TestKubeconformFails: the check above finds what is wrong.
func TestKubeconformFails(t *testing.T) {
	schemas := schemasOf(t, kubernetes[1])
	for _, wrong := range []string{
		"apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: {ports: [{port: eighty}]}\n",
		"apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: {prots: []}\n",
	} {
		cmd := exec.CommandContext(t.Context(), tool(t, "kubeconform"), "-strict", "-schema-location", schemas+"/{{ .ResourceKind }}{{ .KindSuffix }}.json")
		cmd.Stdin = strings.NewReader(wrong)
		if out, err := cmd.CombinedOutput(); err == nil {
			t.Errorf("%s: %s", wrong, out)
		}
	}
}

// schemasOf makes a folder of JSON schemas, as kubeconform names them, of the OpenAPI documents in the module of a version.
func schemasOf(t *testing.T, version string) string {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "go", "mod", "download", "-json", "k8s.io/kubernetes@"+version)
	cmd.Dir = t.TempDir()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	documents, err := filepath.Glob(filepath.Join(module.Dir, "api/openapi-spec/v3/*_openapi.json"))
	if err != nil || len(documents) == 0 {
		t.Fatalf("Kubernetes %s has no OpenAPI documents: %v", version, err)
	}
	dir := t.TempDir()
	for _, path := range documents {
		if !slices.ContainsFunc([]string{"api__v1_", "apps__v1_", "policy__v1_", "autoscaling__v2_", "networking.k8s.io__v1_", "rbac.authorization.k8s.io__v1_"}, func(part string) bool { return strings.Contains(path, part) }) {
			continue
		}
		writeSchemas(t, path, dir)
	}
	return dir
}

// writeSchemas writes one schema for each kind of a document, with all that it refers to.
func writeSchemas(t *testing.T, path, dir string) {
	t.Helper()
	var doc struct {
		Components struct{ Schemas map[string]map[string]any }
	}
	if err := json.Unmarshal([]byte(read(t, path)), &doc); err != nil {
		t.Fatal(err)
	}
	for _, s := range doc.Components.Schemas {
		strict(s)
	}
	for name, s := range doc.Components.Schemas {
		kind, _ := at(s, "x-kubernetes-group-version-kind", 0).(map[string]any)
		if kind == nil || len(s["x-kubernetes-group-version-kind"].([]any)) != 1 {
			continue
		}
		// kubeconform's suffix is the group's first word and the version.
		group, _, _ := strings.Cut(kind["group"].(string), ".")
		suffix := "-" + kind["version"].(string)
		if group != "" {
			suffix = "-" + group + suffix
		}
		text, err := json.Marshal(map[string]any{"$ref": "#/components/schemas/" + name, "components": map[string]any{"schemas": doc.Components.Schemas}})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, strings.ToLower(kind["kind"].(string))+suffix+".json"), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// strict refuses fields that a schema does not know, and takes null and texts where Kubernetes does.
func strict(s map[string]any) {
	if s["properties"] != nil && s["additionalProperties"] == nil {
		s["additionalProperties"] = false
	}
	for _, v := range s {
		switch v := v.(type) {
		case map[string]any:
			strict(v)
		case []any:
			for _, e := range v {
				if m, ok := e.(map[string]any); ok {
					strict(m)
				}
			}
		}
	}
	switch s["format"] {
	case "int-or-string":
		delete(s, "type")
	}
	delete(s, "format")
}
