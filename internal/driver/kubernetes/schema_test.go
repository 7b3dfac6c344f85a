package kubernetes

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// envAgentSandbox names a folder with agent-sandbox's own CustomResourceDefinitions, to be used in place of testdata's.
const envAgentSandbox = "SKERRY_TEST_AGENT_SANDBOX"

// agentSandboxSchemas are those of the version that the driver uses, by kind.
func agentSandboxSchemas(t *testing.T) map[string]*jsonschema.Schema {
	t.Helper()
	files := []string{"testdata/agent-sandbox.yaml"}
	if dir := os.Getenv(envAgentSandbox); dir != "" {
		var err error
		if files, err = filepath.Glob(filepath.Join(dir, "*.yaml")); err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", dir, err)
		}
	}
	out := map[string]*jsonschema.Schema{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		dec := yaml.NewDecoder(bytes.NewReader(text))
		for {
			var crd map[string]any
			if err := dec.Decode(&crd); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			kind, schema := served(asJSON(t, crd))
			if schema == nil {
				continue
			}
			c := jsonschema.NewCompiler()
			if err := c.AddResource(kind, onlyKnown(schema)); err != nil {
				t.Fatal(err)
			}
			if out[kind], err = c.Compile(kind); err != nil {
				t.Fatal(err)
			}
		}
	}
	return out
}

func asJSON(t *testing.T, v any) map[string]any {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	out, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return out.(map[string]any)
}

// served returns the schema of a definition's version that the driver uses; nil: it is of another group.
func served(crd map[string]any) (kind string, schema map[string]any) {
	spec, _ := crd["spec"].(map[string]any)
	if spec["group"] != claimGroup.Group {
		return "", nil
	}
	kind, _, _ = unstructured.NestedString(spec, "names", "kind")
	for _, v := range spec["versions"].([]any) {
		if version := v.(map[string]any); version["name"] == claimGroup.Version {
			schema, _, _ = unstructured.NestedMap(version, "schema", "openAPIV3Schema")
		}
	}
	return kind, schema
}

// onlyKnown refuses what a structural schema does not name: the API server would drop it without a word.
func onlyKnown(node any) any {
	switch n := node.(type) {
	case map[string]any:
		_, open := n["x-kubernetes-preserve-unknown-fields"]
		if _, some := n["properties"].(map[string]any); some && !open {
			n["additionalProperties"] = false
		}
		for _, v := range n {
			onlyKnown(v)
		}
	case []any:
		for _, v := range n {
			onlyKnown(v)
		}
	}
	return node
}

// TestAgentSandboxSchemas: all that is asked of agent-sandbox is what it knows, and so is what these tests play of it.
func TestAgentSandboxSchemas(t *testing.T) {
	schemas := agentSandboxSchemas(t)
	o, spec := testOptions(t), claimSpec(t)
	var all []map[string]any
	for _, runtime := range []string{"runc", "runsc"} {
		spec.Runtime = runtime
		objects, err := o.Pool(spec.ClaimPool, spec, 3)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, objects[1:]...)
		pod := podOf(t, objects[1])
		pod.Spec.NodeName = ""
		restricted(t, &corev1.Pod{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec})
	}
	annotations, err := ownAnnotations(spec)
	if err != nil {
		t.Fatal(err)
	}
	claim := o.sandboxClaim(spec, annotations)
	claim.Object["status"] = status("True", "DependenciesReady", warmPod)
	all = append(all, claim.Object)
	kinds := map[string]bool{}
	for _, object := range all {
		kind := object["kind"].(string)
		kinds[kind] = true
		if schemas[kind] == nil {
			t.Fatalf("%s: there is no schema", kind)
		}
		if err := schemas[kind].Validate(asJSON(t, object)); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		wrong := asJSON(t, object)
		wrong["spec"].(map[string]any)["noSuchField"] = "x"
		if schemas[kind].Validate(wrong) == nil {
			t.Errorf("%s: a field that it does not know is let through", kind)
		}
	}
	if len(kinds) != 3 {
		t.Errorf("only %v", kinds)
	}
}

// TestPoolRefused: what cannot be a pool is said so.
func TestPoolRefused(t *testing.T) {
	for want, change := range map[sandbox.Kind]func(*sandbox.Spec){
		sandbox.Invalid:      func(s *sandbox.Spec) { s.ClaimPool = "No Such" },
		sandbox.NotSupported: func(s *sandbox.Spec) { s.Runtime = "kata" },
	} {
		spec := claimSpec(t)
		change(&spec)
		if _, err := testOptions(t).Pool(spec.ClaimPool, spec, 1); !errors.Is(err, want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
