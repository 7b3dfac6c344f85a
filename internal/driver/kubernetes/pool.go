package kubernetes

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// The pods of a warm pool are alike: they have one uid, beyond those of threads, and one certificate, which only their
// sidecars see.
const (
	firstPoolUID = 1_900_000_000
	poolUIDs     = 100_000_000
)

func poolSum(pool string) [sha256.Size]byte { return sha256.Sum256([]byte("pool " + pool)) }

// poolID stands for a pool where the pods of the driver have their sandbox's id: in the certificate, and in the name of its
// Secret.
func poolID(pool string) sandbox.ID {
	sum := poolSum(pool)
	return sandbox.ID("skerry-" + hex.EncodeToString(sum[:8]))
}

func poolUID(pool string) int {
	sum := poolSum(pool)
	return firstPoolUID + int(binary.BigEndian.Uint32(sum[8:])%poolUIDs)
}

// poolPod describes the pods of a pool: what a sandbox of that Spec would be, without a name.
func (o Options) poolPod(pool string, spec sandbox.Spec, class string) (*corev1.Pod, error) {
	spec.ID, spec.UID, spec.Labels = poolID(pool), poolUID(pool), nil
	p, err := o.pod(spec, class)
	if err != nil {
		return nil, err
	}
	p.Name = ""
	for _, name := range []string{annotationLabels, annotationSpec, annotationID} {
		delete(p.Annotations, name)
	}
	return p, nil
}

// Pool returns the objects of agent-sandbox for a warm pool of sandboxes like spec: a Secret, a
// SandboxTemplate and a SandboxWarmPool. Of spec, its image, runtime, arguments, hostname, limits and
// loosened points count. The Secret has a private key.
func (o Options) Pool(pool string, spec sandbox.Spec, replicas int) ([]map[string]any, error) {
	if err := complete(&o); err != nil {
		return nil, err
	}
	if problems := validation.IsDNS1123Label(pool); len(problems) > 0 {
		return nil, sandbox.Errorf(sandbox.Invalid, "pool %.80q: %s", pool, problems[0])
	}
	r, err := hardening.FindRuntime(spec.Runtime)
	if err != nil {
		return nil, err
	}
	p, err := o.poolPod(pool, spec, o.RuntimeClasses[r.Name])
	if err != nil {
		return nil, err
	}
	podSpec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&p.Spec)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the pool cannot be described")
	}
	secret, err := o.secret(poolID(pool))
	if err != nil {
		return nil, err
	}
	secret.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}
	secret.Immutable = nil // the certificate of the next year is applied over it
	certificate, err := runtime.DefaultUnstructuredConverter.ToUnstructured(secret)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the pool cannot be described")
	}
	named := func() map[string]any { return map[string]any{"name": pool, "namespace": o.Namespace} }
	return []map[string]any{certificate, {
		"apiVersion": claimGroup.String(), "kind": "SandboxTemplate", "metadata": named(),
		"spec": map[string]any{
			"podTemplate": map[string]any{
				"metadata": map[string]any{"labels": plain(p.Labels), "annotations": plain(p.Annotations)},
				"spec":     podSpec,
			},
			// agent-sandbox's own policy would let the pods out to the internet.
			"networkPolicyManagement": "Unmanaged",
			"service":                 false,
		},
	}, {
		"apiVersion": claimGroup.String(), "kind": "SandboxWarmPool", "metadata": named(),
		"spec": map[string]any{
			"replicas": int64(replicas), "sandboxTemplateRef": map[string]any{"name": pool},
			// What waits with an older description would be refused.
			"updateStrategy": map[string]any{"type": "Recreate"},
		},
	}}, nil
}

func plain(texts map[string]string) map[string]any {
	out := make(map[string]any, len(texts))
	for name, text := range texts {
		out[name] = text
	}
	return out
}
