package kubernetes

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// The cluster decides where a pod runs, and fills in what it leaves open: these members of its spec, and these of whatever
// is in it, may be there and be anything. All others have to be as the driver would ask for them.
var (
	decidedByCluster = map[string]bool{
		"nodeName": true, "nodeSelector": true, "affinity": true, "tolerations": true, "topologySpreadConstraints": true, "schedulerName": true,
		"priority": true, "priorityClassName": true, "preemptionPolicy": true, "overhead": true, "imagePullSecrets": true,
		// No token of the account is in the pod, and one without the node's user namespace has less, not more.
		"serviceAccountName": true, "serviceAccount": true, "hostUsers": true,
	}
	filledIn = map[string]bool{
		"imagePullPolicy": true, "terminationMessagePath": true, "terminationMessagePolicy": true, "successThreshold": true, "protocol": true,
	}
)

// misfit says in which point a pod is not as the driver would have made it, or "".
func misfit(want, got *corev1.Pod) string {
	for _, texts := range []struct {
		at        string
		want, got map[string]string
	}{
		{"metadata.labels", want.Labels, got.Labels}, {"metadata.annotations", want.Annotations, got.Annotations},
	} {
		for _, name := range slices.Sorted(maps.Keys(texts.want)) {
			there, ok := texts.got[name]
			switch at := fmt.Sprintf("%s[%s]", texts.at, name); {
			case !ok:
				return differs(at, texts.want[name], nil)
			case there != texts.want[name]:
				return differs(at, texts.want[name], there)
			}
		}
	}
	wanted, err := tree(want.Spec)
	if err != nil {
		return err.Error()
	}
	there, err := tree(got.Spec)
	if err != nil {
		return err.Error()
	}
	for name := range decidedByCluster {
		delete(wanted, name)
		delete(there, name)
	}
	return misfitOf("spec", wanted, there)
}

func tree(spec corev1.PodSpec) (map[string]any, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	return out, json.Unmarshal(text, &out)
}

// misfitOf compares two values of JSON, and says where they differ first.
func misfitOf(at string, want, got any) string {
	switch want := want.(type) {
	case map[string]any:
		if there, ok := got.(map[string]any); ok {
			return misfitOfMap(at, want, there)
		}
		return differs(at, want, got)
	case []any:
		there, _ := got.([]any)
		if len(want) != len(there) {
			return fmt.Sprintf("%s has %d entries, want %d", at, len(there), len(want))
		}
		for i := range want {
			if words := misfitOf(at+place(want[i], i), want[i], there[i]); words != "" {
				return words
			}
		}
		return ""
	}
	if want != got {
		return differs(at, want, got)
	}
	return ""
}

func misfitOfMap(at string, want, got map[string]any) string {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if filledIn[name] {
			continue
		}
		if words := misfitOf(at+"."+name, want[name], got[name]); words != "" {
			return words
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok && !filledIn[name] {
			return differs(at+"."+name, nil, got[name])
		}
	}
	return ""
}

// place names an entry of a list as people do.
func place(entry any, i int) string {
	if m, ok := entry.(map[string]any); ok {
		if name, ok := m["name"].(string); ok {
			return "[" + name + "]"
		}
	}
	return fmt.Sprintf("[%d]", i)
}

func differs(at string, want, got any) string {
	switch {
	case got == nil:
		return fmt.Sprintf("%s is missing, want %s", at, shown(want))
	case want == nil:
		return fmt.Sprintf("%s is %s, want none", at, shown(got))
	}
	return fmt.Sprintf("%s is %s, want %s", at, shown(got), shown(want))
}

// maxShown bounds how much of a value is shown: the filter of system calls is in one of them.
const maxShown = 60

func shown(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%T", v)
	}
	if len(text) > maxShown {
		return fmt.Sprintf("%s… (%d bytes)", text[:maxShown], len(text))
	}
	return string(text)
}
