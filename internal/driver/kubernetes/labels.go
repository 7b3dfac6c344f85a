package kubernetes

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Labels of the pods of sandboxes, by which a NetworkPolicy selects all of them.
const (
	ComponentLabel = "app.kubernetes.io/component"
	Component      = "sandbox"
	managerLabel   = "app.kubernetes.io/managed-by"
	manager        = "skerry"
)

// Annotations of pods, in JSON: what a Spec has that a pod's own fields do not tell.
const (
	annotationLabels = "skerry.io/labels"  // the labels of the Spec, true
	annotationSpec   = "skerry.io/spec"    // remembered
	annotationID     = "skerry.io/sandbox" // the sandbox, where the pod is not called so: of a warm pool
)

// labelPrefix begins the names of the labels that stand for those of a Spec. Kubernetes refuses most characters in
// labels, so that both names and values are hashes: they serve for selecting, and the annotation tells the truth.
const labelPrefix = "label.skerry.io/"

// remembered is what a later server has to know of a sandbox.
type remembered struct {
	Runtime string         `json:"runtime"`
	UID     int            `json:"uid"`
	Limits  sandbox.Limits `json:"limits"`
	Pool    string         `json:"pool,omitempty"` // the warm pool that the pod was claimed from
}

func hashed(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// selectors returns the labels of a pod that stand for those of a Spec.
func selectors(labels map[string]string) map[string]string {
	out := make(map[string]string, len(labels))
	for name, value := range labels {
		out[labelPrefix+hashed(name)] = hashed(value)
	}
	return out
}

// podLabels returns all labels of a sandbox's pod.
func (o Options) podLabels(labels map[string]string) map[string]string {
	out := maps.Clone(o.Pods.Labels)
	if out == nil {
		out = make(map[string]string)
	}
	out[managerLabel] = manager
	out[ComponentLabel] = Component
	maps.Copy(out, selectors(labels))
	return out
}

func encode(v any) (string, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return "", sandbox.Wrap(sandbox.Internal, err, "the sandbox cannot be described")
	}
	return string(data), nil
}

// mine selects the pods of this driver.
const mine = managerLabel + "=" + manager + "," + ComponentLabel + "=" + Component

// isMine reports whether a pod was made by this driver.
func isMine(p *corev1.Pod) bool {
	return p.Labels[ComponentLabel] == Component && p.Labels[managerLabel] == manager && p.Annotations[annotationSpec] != ""
}

// idOf is the sandbox of a pod of ours.
func idOf(p *corev1.Pod) sandbox.ID {
	if id := p.Annotations[annotationID]; id != "" {
		return sandbox.ID(id)
	}
	return sandbox.ID(p.Name)
}

// ownAnnotations are what a pod remembers of its Spec.
func ownAnnotations(spec sandbox.Spec) (map[string]string, error) {
	labels, err := encode(spec.Labels)
	if err != nil {
		return nil, err
	}
	rest, err := encode(remembered{spec.Runtime, spec.UID, spec.Limits, spec.ClaimPool})
	if err != nil {
		return nil, err
	}
	out := map[string]string{annotationLabels: labels, annotationSpec: rest}
	if spec.ClaimPool != "" {
		out[annotationID] = string(spec.ID)
	}
	return out, nil
}

// specLabels returns the labels of the Spec.
func specLabels(p *corev1.Pod) map[string]string {
	var out map[string]string
	if json.Unmarshal([]byte(p.Annotations[annotationLabels]), &out) != nil {
		return nil
	}
	return out
}

// recall returns what a pod remembers of its Spec.
func recall(p *corev1.Pod) (remembered, error) {
	var out remembered
	if err := json.Unmarshal([]byte(p.Annotations[annotationSpec]), &out); err != nil {
		return out, sandbox.Wrap(sandbox.Internal, err, "sandbox %s does not tell what it was made from", p.Name)
	}
	return out, nil
}
