package kubernetes

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func onVolume(t *testing.T, thread string) sandbox.Spec {
	spec := testSpec(t)
	spec.Volume = &sandbox.Volume{Tenant: "acme", User: "u", Thread: thread}
	return spec
}

func (p *pretended) claims() []corev1.PersistentVolumeClaim {
	p.Helper()
	list, err := p.api.Core.PersistentVolumeClaims(p.d.o.Namespace).List(p.Context(), metav1.ListOptions{})
	if err != nil {
		p.Fatal(err)
	}
	return list.Items
}

// TestClaims: all threads of a user have one claim, each a folder of its own, and it stays when their pods go.
func TestClaims(t *testing.T) {
	p := pretend(t)
	folders := map[string]bool{}
	for i, thread := range []string{"a", "b"} {
		spec := onVolume(t, thread)
		spec.ID = []sandbox.ID{"skerry-00000000000000a1", "skerry-00000000000000a2"}[i]
		if _, err := p.d.Create(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		for _, m := range p.pods()[i].Spec.Containers[0].VolumeMounts {
			if m.Name == volumeUserData {
				folder, _, _ := strings.Cut(m.SubPath, "/")
				folders[folder] = true
			}
		}
	}
	if len(folders) != 2 {
		t.Errorf("the folders are %v", folders)
	}
	claims := p.claims()
	if len(claims) != 1 || claims[0].Annotations[annotationUser] != "acme/u" {
		t.Fatalf("the claims are %+v", claims)
	}
	if q := claims[0].Spec.Resources.Requests[corev1.ResourceStorage]; q.String() != "20Gi" || claims[0].Spec.AccessModes[0] != corev1.ReadWriteOnce || claims[0].Spec.StorageClassName != nil {
		t.Errorf("the claim asks for %+v", claims[0].Spec)
	}
	for _, pod := range p.pods() {
		if err := p.d.Remove(t.Context(), sandbox.ID(pod.Name)); err != nil {
			t.Fatal(err)
		}
	}
	if left := p.claims(); len(left) != 1 {
		t.Errorf("left are %+v", left)
	}
}

// TestAheadIsNotOverwritten: of what the volume has nothing is replaced by the server's copy.
func TestAheadIsNotOverwritten(t *testing.T) {
	p, spec := pretend(t), onVolume(t, "a")
	spec.Volume.Ahead = true
	if _, err := p.d.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if want := []string{sandbox.SkillsDir}; !slices.Equal(p.pushed, want) {
		t.Errorf("pushed %v, want %v", p.pushed, want)
	}
}

// TestVolumeRefused: what the cluster does not have is named, and nothing is left.
func TestVolumeRefused(t *testing.T) {
	claims := schema.GroupResource{Resource: "persistentvolumeclaims"}
	for name, c := range map[string]struct {
		cluster func(*pretended)
		want    sandbox.Kind
		words   string
	}{
		"no rule": {func(p *pretended) {
			p.fails("create", "persistentvolumeclaims", apierrors.NewForbidden(claims, "x", errors.New(`User "a" cannot create resource`)))
		}, sandbox.Unavailable, "create persistentvolumeclaims"},
		"quota": {func(p *pretended) {
			p.fails("create", "persistentvolumeclaims", apierrors.NewForbidden(claims, "x", errors.New("exceeded quota: disks, requested: 1")))
		}, sandbox.CapacityExceeded, "disks, requested: 1"},
		"not bound": {func(p *pretended) {
			p.status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "pod has unbound immediate PersistentVolumeClaims",
			}}}
		}, sandbox.CapacityExceeded, "on one node unless volumes are ReadWriteMany: pod has unbound"},
		"another's": {func(p *pretended) {
			_, err := p.api.Core.PersistentVolumeClaims(p.d.o.Namespace).Create(p.Context(), &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Name: claimName(&sandbox.Volume{Tenant: "acme", User: "u"})},
			}, metav1.CreateOptions{})
			if err != nil {
				p.Fatal(err)
			}
		}, sandbox.Conflict, "taken by another claim"},
	} {
		t.Run(name, func(t *testing.T) {
			p := pretend(t)
			c.cluster(p)
			_, err := p.d.Create(t.Context(), onVolume(t, "a"))
			var ours *sandbox.Error
			if !errors.As(err, &ours) || ours.Kind != c.want || !strings.Contains(ours.Detail, c.words) {
				t.Errorf("%v (%s), want %s with %q", err, sandbox.KindOf(err), c.want, c.words)
			}
			if left := p.pods(); len(left) > 0 {
				t.Errorf("left over: %v", left[0].Name)
			}
		})
	}
}

// TestRemoveFolder: a pod of its own removes the folder, and says when it could not.
func TestRemoveFolder(t *testing.T) {
	p, spec := pretend(t), onVolume(t, "a")
	if err := p.d.RemoveFolder(t.Context(), spec); err != nil || len(p.pods()) > 0 {
		t.Errorf("without a claim: %v, %d pods", err, len(p.pods()))
	}
	if err := (volumeClaims{p.d}).claim(t.Context(), spec.Volume); err != nil {
		t.Fatal(err)
	}
	for code, kind := range map[int32]sandbox.Kind{0: "", 1: sandbox.Unavailable} {
		var pod *corev1.Pod
		p.mu.Lock()
		p.made = func(made *corev1.Pod) { pod = made.DeepCopy() }
		p.status = corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{{
			Name: containerSandbox, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: "skerry-bridge: no"}},
		}}}
		p.mu.Unlock()
		spec.ID = sandbox.ID(fmt.Sprintf("skerry-00000000000000a%d", code))
		if err := p.d.RemoveFolder(t.Context(), spec); err == nil && kind != "" || err != nil && sandbox.KindOf(err) != kind {
			t.Errorf("code %d: %v, want %q", code, err, kind)
		}
		if left := p.pods(); len(left) > 0 {
			t.Errorf("code %d: left over: %v", code, left[0].Name)
		}
		if want := []string{bridgeProgram, "--remove=/volumes/user-data/" + hashed("a")}; !slices.Equal(pod.Spec.Containers[0].Command, want) {
			t.Errorf("the command is %q", pod.Spec.Containers[0].Command)
		}
		restricted(t, pod)
	}
}
