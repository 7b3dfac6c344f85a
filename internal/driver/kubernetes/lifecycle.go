package kubernetes

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/platform/retry"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// creation makes a pod, step by step, and undoes what it made.
type creation struct{ *Driver }

// Create implements driver.Driver and, for the copies, driver.Remote. Of a sandbox that runs already it copies and
// attaches nothing: another server may have it.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error) {
	pod, err := creation{d}.describe(ctx, spec)
	if err != nil {
		return sandbox.Instance{}, err
	}
	unlock, err := d.locks.Lock(ctx, spec.ID)
	if err != nil {
		return sandbox.Instance{}, err
	}
	defer unlock()
	start := func() (bool, error) { return creation{d}.make(ctx, spec.ID, pod) }
	if spec.ClaimPool != "" {
		start = func() (bool, error) { return warmPool{d}.claimPod(ctx, spec) }
	}
	return creation{d}.create(ctx, spec, start)
}

// describe returns the pod of a sandbox that may be made here.
func (d creation) describe(ctx context.Context, spec sandbox.Spec) (*corev1.Pod, error) {
	if err := hardening.CheckSpec(spec); err != nil {
		return nil, err
	}
	class, problem, err := findings(d).usable(ctx, spec.Runtime)
	if err != nil {
		return nil, err
	}
	if problem != "" {
		return nil, sandbox.Errorf(sandbox.NotSupported, "runtime %q cannot be used: %s", spec.Runtime, problem)
	}
	if spec.Image == "" {
		return nil, sandbox.Errorf(sandbox.NotSupported, "this driver needs an image: it cannot use the host's own programs")
	}
	if err := hardening.CheckMounts(spec); err != nil {
		return nil, err
	}
	return d.o.pod(spec, class)
}

// create has start make the pod, or claim one, unless there is one.
func (d creation) create(ctx context.Context, spec sandbox.Spec, start func() (made bool, err error)) (sandbox.Instance, error) {
	if there, err := d.existing(ctx, spec.ID); err == nil || !errors.Is(err, sandbox.NotFound) {
		return there, err
	}
	if err := d.pods.synced(ctx); err != nil {
		return sandbox.Instance{}, err
	}
	if ctx.Err() != nil {
		return sandbox.Instance{}, sandbox.Wrap(sandbox.Timeout, context.Cause(ctx), "the sandbox was not made in time")
	}
	if spec.Volume != nil {
		if err := volumeClaims(d).claim(ctx, spec.Volume); err != nil {
			return sandbox.Instance{}, err
		}
	}
	made, err := start()
	if err != nil {
		return sandbox.Instance{}, err
	}
	if !made { // another server was faster
		return d.existing(ctx, spec.ID)
	}
	there, err := d.start(ctx, spec)
	if err != nil {
		d.discard(ctx, spec.ID)
	}
	return there, err
}

// existing answers a Create whose pod is there. A pod that starts is another server's, which is about to fill it.
func (d creation) existing(ctx context.Context, id sandbox.ID) (sandbox.Instance, error) {
	p, err := d.lookup.pod(ctx, id)
	switch {
	case err != nil:
		return sandbox.Instance{}, err
	case p == nil:
		return sandbox.Instance{}, notHere(id)
	case !isMine(p):
		return sandbox.Instance{}, taken(id)
	}
	there := d.instance(p)
	switch there.State {
	case sandbox.Lost:
		return sandbox.Instance{}, sandbox.Errorf(sandbox.Conflict, "sandbox %s has ended and is not removed", id)
	case sandbox.Starting:
		return d.awaitRunning(ctx, id)
	}
	return there, nil
}

// taken is the error for a sandbox whose name a pod of another client has.
func taken(id sandbox.ID) error {
	return sandbox.Errorf(sandbox.Conflict, "the name of sandbox %s is taken by another pod", id)
}

// make makes the pod, and its Secret, which goes with it. made is false when there is one already. The API server
// finishes a request whether or not the client waits for the answer, so neither is cut off with ctx: nothing would tell
// when it is time to take away what they made.
func (d creation) make(ctx context.Context, id sandbox.ID, pod *corev1.Pod) (made bool, err error) {
	secret, err := d.o.secret(id)
	if err != nil {
		return false, err
	}
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), changeTimeout)
	defer cancel()
	there, err := d.client.Core.Pods(d.o.Namespace).Create(own, pod, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	if err != nil {
		if !isAPIStatus(err) || isPassing(err) { // it may have been made all the same
			d.discard(ctx, id)
		}
		return false, apiError(err, "the sandbox was not made", "create pods")
	}
	secret.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: there.Name, UID: there.UID}}
	if err := makeSecret(own, d.client.Core.Secrets(d.o.Namespace), secret); err != nil {
		d.discard(ctx, id)
		return false, apiError(err, "the sandbox was not given its certificate", "create secrets")
	}
	return true, nil
}

// makeSecret makes the Secret of a pod that was just made. One of that name belonged to a pod that is gone: the cluster's
// garbage collector deletes it in a moment, and the server may not.
func makeSecret(ctx context.Context, secrets corev1client.SecretInterface, secret *corev1.Secret) error {
	for pauses := retry.Doubling(100*time.Millisecond, time.Second); ; {
		_, err := secrets.Create(ctx, secret, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		select {
		case <-time.After(pauses.NextBackOff()):
		case <-ctx.Done():
			return err
		}
	}
}

// secret has the certificate of a sandbox, or of a warm pool.
func (o Options) secret(id sandbox.ID) (*corev1.Secret, error) {
	files, err := o.Authority.Sandbox(id)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the sandbox's certificate could not be made")
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: secretName(id), Namespace: o.Namespace,
			Labels: map[string]string{managerLabel: manager, ComponentLabel: Component},
		},
		Immutable: new(true),
		Data:      files.Files(),
	}, nil
}

// secretName is that of the Secret with a sandbox's certificate.
func secretName(id sandbox.ID) string { return string(id) + "-tls" }

// start fills a pod that was made, as soon as its sidecar can be reached, and waits until its sandbox runs: the kubelet
// starts that meanwhile.
func (d creation) start(ctx context.Context, spec sandbox.Spec) (there sandbox.Instance, err error) {
	both, starting := errgroup.WithContext(ctx) // which ends with them
	both.Go(func() error {
		if err := d.awaitSidecar(starting, spec.ID); err != nil {
			return err
		}
		return d.fill(starting, spec)
	})
	both.Go(func() (err error) {
		there, err = d.awaitRunning(starting, spec.ID)
		return err
	})
	if err := both.Wait(); err != nil {
		return sandbox.Instance{}, err
	}
	if err := networkProof(d).proveClosed(ctx, spec.ID); err != nil {
		return sandbox.Instance{}, err
	}
	return there, nil
}

// awaitSidecar waits until the kubelet has started a pod's sidecar and told its address. Why that will not come
// awaitRunning says.
func (d creation) awaitSidecar(ctx context.Context, id sandbox.ID) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d.o.StartTimeout, errSlow)
	defer cancel()
	err := d.pods.await(ctx, id, 0, func(p *corev1.Pod) (bool, error) {
		return p != nil && p.Status.PodIP != "" && sidecarRuns(p), nil
	})
	if err != nil {
		return sandbox.Wrap(sandbox.Timeout, err, "the sandbox did not start in time")
	}
	return nil
}

// awaitRunning waits for the pod's sandbox, and says early why it will not come.
func (d creation) awaitRunning(ctx context.Context, id sandbox.ID) (sandbox.Instance, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.o.StartTimeout, errSlow)
	defer cancel()
	var there sandbox.Instance
	seen, began := false, time.Now()
	err := d.pods.await(ctx, id, d.o.ScheduleTimeout, func(p *corev1.Pod) (bool, error) {
		if p == nil {
			if seen {
				return false, sandbox.Errorf(sandbox.Unavailable, "the sandbox was deleted while it started")
			}
			return false, nil
		}
		seen = true
		there = d.instance(p)
		if there.State == sandbox.Running {
			return true, nil
		}
		if err := problem(p); err != nil {
			return false, err
		}
		return false, noRoom(p, began, d.o.ScheduleTimeout)
	})
	if err == nil || sandbox.KindOf(err) != sandbox.Internal || errors.As(err, new(*sandbox.Error)) {
		return there, err
	}
	return sandbox.Instance{}, sandbox.Wrap(sandbox.Timeout, err, "the sandbox did not start in time")
}

var errSlow = errors.New("the pod takes longer than the driver waits for one")

// discard takes away a sandbox that failed to start, also when its caller has gone.
func (d creation) discard(ctx context.Context, id sandbox.ID) {
	if err := d.remove(context.WithoutCancel(ctx), id); err != nil {
		d.o.Log.Error("a sandbox that failed to start is not wholly removed", "sandbox", id, "error", err)
	}
}

// Remove implements driver.Driver.
func (d *Driver) Remove(ctx context.Context, id sandbox.ID) error {
	if err := hardening.CheckID(id); err != nil {
		return err
	}
	unlock, err := d.locks.Lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	return d.remove(ctx, id)
}

// remove deletes the pod without a time of grace, as PID 1 has nothing to say good-bye to, and waits until it is gone.
func (d *Driver) remove(ctx context.Context, id sandbox.ID) error {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	d.tunnel.Drop(id)
	p, err := d.lookup.pod(ctx, id)
	switch {
	case err != nil:
		return err
	case p == nil:
		return nil
	case !isMine(p):
		return taken(id)
	case isClaimed(p):
		if err := (warmPool{d}).release(ctx, id); err != nil {
			return err
		}
		return d.lookup.awaitGone(ctx, id, p)
	}
	at := metav1.DeletePropagationBackground
	err = d.client.Core.Pods(d.o.Namespace).Delete(ctx, string(id), metav1.DeleteOptions{
		GracePeriodSeconds: new(int64), PropagationPolicy: &at, Preconditions: &metav1.Preconditions{UID: &p.UID},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // gone, or another one since
		return nil
	}
	if err != nil {
		return apiError(err, "the sandbox was not removed", "delete pods")
	}
	return d.lookup.awaitGone(ctx, id, p)
}
