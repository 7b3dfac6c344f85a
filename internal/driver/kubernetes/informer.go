package kubernetes

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/events"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// resync is how often the informer tells all pods again that it knows, so that nothing that was overlooked stays so.
const resync = 10 * time.Minute

// pods follows the pods of the namespace through one informer. When the API server goes away, the informer
// lists and watches again by itself, with growing pauses.
type pods struct {
	informer cache.SharedIndexInformer
	log      *slog.Logger
	gone     func(sandbox.ID) // is told of each end; set before run
	events   events.Feed

	mu      sync.Mutex
	known   map[sandbox.ID]*corev1.Pod
	ended   map[sandbox.ID]bool      // those of known whose end was told
	heard   map[sandbox.ID]types.UID // pods that start, by their status, whose sandbox spoke
	waiters map[sandbox.ID]map[chan struct{}]bool
	failing bool // the last attempt to follow failed
}

func newPods(namespace string, client Clientset, log *slog.Logger) *pods {
	w := &pods{
		log: log, gone: func(sandbox.ID) {},
		known: make(map[sandbox.ID]*corev1.Pod), ended: make(map[sandbox.ID]bool), heard: make(map[sandbox.ID]types.UID),
		waiters: make(map[sandbox.ID]map[chan struct{}]bool),
	}
	all := client.Core.Pods(namespace)
	w.informer = cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = mine
			return all.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = mine
			return all.Watch(ctx, o)
		},
	}, client.Core), &corev1.Pod{}, cache.SharedIndexInformerOptions{ResyncPeriod: resync})
	_ = w.informer.SetTransform(slim) // fails only once it runs
	return w
}

// slim drops what is not read, so that many pods take little memory.
func slim(obj any) (any, error) {
	if p, ok := obj.(*corev1.Pod); ok {
		p.ManagedFields = nil
		p.Spec.Volumes, p.Spec.Containers, p.Spec.InitContainers = nil, nil, nil
	}
	return obj, nil
}

// run follows until ctx ends.
func (w *pods) run(ctx context.Context) {
	_ = w.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) { // fails only once it runs
		if ctx.Err() == nil {
			w.interrupted(err)
		}
	})
	_, err := w.informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(obj any, initial bool) { w.seen(obj, initial) },
		UpdateFunc: func(_, obj any) { w.seen(obj, false) },
		DeleteFunc: w.deleted,
	})
	if err != nil {
		w.log.Error("sandboxes cannot be watched", "driver", Name, "error", err)
		return
	}
	w.informer.RunWithContext(ctx)
}

// interrupted logs the first failure of a row.
func (w *pods) interrupted(err error) {
	w.mu.Lock()
	first := !w.failing
	w.failing = true
	w.mu.Unlock()
	if first {
		w.log.Warn("watching sandboxes is interrupted", "driver", Name, "error", err)
	}
}

// synced waits until the pods that are there are known.
func (w *pods) synced(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), w.informer.HasSynced) {
		return sandbox.Wrap(sandbox.Unavailable, context.Cause(ctx), "the API server of the cluster does not tell what runs")
	}
	return nil
}

// seen takes a pod as it is now. List finds a pod that had ended before it was watched.
func (w *pods) seen(obj any, initial bool) {
	p, ok := obj.(*corev1.Pod)
	if !ok || !isMine(p) || hardening.CheckID(idOf(p)) != nil {
		return
	}
	id := idOf(p)
	s, oom, _ := state(p)
	w.mu.Lock()
	w.failing = false
	if now := w.known[id]; now != nil && now.UID == p.UID && hasEnded(now) && s != sandbox.Lost {
		w.mu.Unlock()
		return // what learnEnd was told is newer
	}
	w.known[id] = p
	if s != sandbox.Starting {
		delete(w.heard, id)
	}
	if s == sandbox.Lost {
		w.end(id, oom, !initial)
	}
	w.wake(id)
	w.mu.Unlock()
	if s == sandbox.Lost {
		w.gone(id)
	}
}

// learnEnd takes a pod that has ended, as the API server told it just now: events may come much later, and a caller
// who was told of the end must not find a sandbox that runs.
func (w *pods) learnEnd(p *corev1.Pod) {
	id := idOf(p)
	now := w.now(id)
	if !hasEnded(p) || now == nil || now.UID != p.UID || hasEnded(now) {
		return
	}
	_, _ = slim(p)
	w.seen(p, false)
}

func hasEnded(p *corev1.Pod) bool {
	s, _, _ := state(p)
	return s == sandbox.Lost
}

// deleted takes a pod that is gone, also when that was only noticed later.
func (w *pods) deleted(obj any) {
	if late, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = late.Obj
	}
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	id := idOf(p)
	_, oom, _ := state(p)
	w.mu.Lock()
	if w.known[id] != nil {
		w.end(id, oom, true)
	}
	delete(w.known, id)
	delete(w.ended, id)
	delete(w.heard, id)
	w.wake(id)
	w.mu.Unlock()
	w.gone(id)
}

// end tells of an end, once. w.mu is held.
func (w *pods) end(id sandbox.ID, oom, tell bool) {
	if w.ended[id] {
		return
	}
	w.ended[id] = true
	if !tell {
		return
	}
	w.events.Put(driver.Event{ID: id, State: sandbox.Lost, OOM: oom})
}

// wake makes those look who wait for a pod. w.mu is held.
func (w *pods) wake(id sandbox.ID) {
	for c := range w.waiters[id] {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// markHeard notes that a pod's sandbox spoke.
func (w *pods) markHeard(p *corev1.Pod) {
	id := idOf(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := w.known[id]; now == nil || now.UID != p.UID {
		return
	} else if s, _, _ := state(now); s == sandbox.Starting {
		w.heard[id] = p.UID
		w.wake(id)
	}
}

// wasHeard reports whether a pod's sandbox spoke.
func (w *pods) wasHeard(p *corev1.Pod) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heard[idOf(p)] == p.UID && p.UID != ""
}

// now returns a pod as it was last seen; nil: it was not.
func (w *pods) now(id sandbox.ID) *corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known[id]
}

// await calls look with a pod as it is (nil: not seen), at once and after each change of it, until look is done or ctx
// ends. due, when it is not 0, calls it once more after that time.
func (w *pods) await(ctx context.Context, id sandbox.ID, due time.Duration, look func(p *corev1.Pod) (done bool, err error)) error {
	changed := make(chan struct{}, 1)
	w.mu.Lock()
	if w.waiters[id] == nil {
		w.waiters[id] = make(map[chan struct{}]bool)
	}
	w.waiters[id][changed] = true
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.waiters[id], changed)
		if len(w.waiters[id]) == 0 {
			delete(w.waiters, id)
		}
	}()
	var late <-chan time.Time
	if due > 0 {
		timer := time.NewTimer(due)
		defer timer.Stop()
		late = timer.C
	}
	for {
		if done, err := look(w.now(id)); done || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-late:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
