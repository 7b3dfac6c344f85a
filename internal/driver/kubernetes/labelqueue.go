package kubernetes

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skerry-sandbox/skerry/internal/platform/retry"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	relabelFirst = 200 * time.Millisecond // pause after a failed patch; it doubles
	relabelMost  = 10 * time.Second
	relabelGive  = 2 * time.Minute
)

// labelQueue puts labels on pods, by one patch after another for each sandbox.
type labelQueue struct {
	lookup  lookup
	closing context.Context // ends with the driver
	running *sync.WaitGroup // goroutines of the driver

	mu   sync.Mutex
	byID map[sandbox.ID]map[string]string // all labels that were asked for and are not on the pod; one goroutine for each
}

// put puts labels on a pod, by one patch, and tries again when the API server does not take it.
func (q *labelQueue) put(p *corev1.Pod, labels map[string]string) {
	id := idOf(p)
	q.mu.Lock()
	defer q.mu.Unlock()
	if waiting, ok := q.byID[id]; ok {
		maps.Copy(waiting, labels)
		return
	}
	if q.byID == nil {
		q.byID = make(map[sandbox.ID]map[string]string)
	}
	q.byID[id] = maps.Clone(labels)
	q.running.Go(func() { q.work(q.closing, id) })
}

// work works until nothing waits for the pod, or the pod is gone.
func (q *labelQueue) work(ctx context.Context, id sandbox.ID) {
	ctx, cancel := context.WithTimeout(ctx, relabelGive)
	defer cancel()
	seen := q.lookup.pods.now(id)
	pauses := retry.Doubling(relabelFirst, relabelMost)
	for {
		q.mu.Lock()
		want := q.byID[id]
		if len(want) == 0 {
			delete(q.byID, id)
			q.mu.Unlock()
			return
		}
		want = maps.Clone(want)
		q.mu.Unlock()

		err := q.patch(ctx, seen, id, want)
		stale := seen != nil && apierrors.IsConflict(err)
		seen = nil
		switch {
		case stale:
			continue
		case err == nil || apierrors.IsNotFound(err):
			pauses.Reset()
			q.mu.Lock()
			for name, value := range want {
				if q.byID[id][name] == value {
					delete(q.byID[id], name)
				}
			}
			q.mu.Unlock()
			continue
		case ctx.Err() != nil:
			q.lookup.o.Log.Error("a sandbox did not get its labels", "sandbox", id, "error", err)
			q.mu.Lock()
			delete(q.byID, id)
			q.mu.Unlock()
			return
		}
		q.lookup.o.Log.Warn("a sandbox does not get its labels", "sandbox", id, "error", err)
		select {
		case <-time.After(pauses.NextBackOff()):
		case <-ctx.Done():
		}
	}
}

// patch adds labels to the ones of a pod. It writes the annotation whole, and only over that of p, the pod
// as it was last seen. With a nil p it asks the API server.
func (q *labelQueue) patch(ctx context.Context, p *corev1.Pod, id sandbox.ID, want map[string]string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	if p == nil {
		if p, err = q.lookup.pod(ctx, id); err != nil || p == nil {
			return err
		}
	}
	all := specLabels(p)
	if all == nil {
		all = make(map[string]string)
	}
	maps.Copy(all, want)
	text, err := encode(all)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": p.ResourceVersion, "labels": selectors(want), "annotations": map[string]string{annotationLabels: text},
	}})
	if err != nil {
		return err
	}
	_, err = q.lookup.client.Core.Pods(q.lookup.o.Namespace).Patch(ctx, p.Name, types.MergePatchType, body, metav1.PatchOptions{})
	return err
}
