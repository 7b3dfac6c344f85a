package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// apiError sets the kind of an error of the API server. text is for callers, and so is verb ("create pods"): the rule that
// is missing where the server was refused it. The API server's own words are in the cause, for they name nodes and addresses;
// only of quotas and of admission are they what a caller needs.
func apiError(err error, text, verb string) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return sandbox.Wrap(sandbox.Timeout, err, "%s in time", text)
	case apierrors.IsForbidden(err):
		return forbidden(err, text, verb)
	case apierrors.IsUnauthorized(err):
		return sandbox.Wrap(sandbox.Unavailable, err, "%s: the API server of the cluster does not know this server's account", text)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return sandbox.Wrap(sandbox.Conflict, err, "%s", text)
	case apierrors.IsNotFound(err): // of the pod itself others take care
		return sandbox.Wrap(sandbox.Unavailable, err, "%s: the cluster has no such namespace or kind of object", text)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return sandbox.Wrap(sandbox.Invalid, err, "%s: the cluster refuses its description", text)
	case isAPIStatus(err) && !isPassing(err):
		return sandbox.Wrap(sandbox.Internal, err, "%s", text)
	default: // no answer at all, or "later"
		return sandbox.Wrap(sandbox.Unavailable, err, "the API server of the cluster cannot be reached")
	}
}

func isAPIStatus(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// isPassing: the API server says that it can do nothing now.
func isPassing(err error) bool {
	return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err)
}

// forbidden tells the three things that a cluster forbids with the same status apart: by quota, by a check of what is to
// be made (Pod Security, a webhook), and for want of a rule for this server's account.
func forbidden(err error, text, verb string) error {
	words := err.Error()
	switch {
	case strings.Contains(words, "exceeded quota"):
		return sandbox.Wrap(sandbox.CapacityExceeded, err, "%s: a quota of the cluster's namespace is used up (%s)", text, after(words, "exceeded quota: "))
	case strings.Contains(words, "violates PodSecurity"):
		return sandbox.Wrap(sandbox.NotSupported, err, "%s: the cluster's Pod Security refuses it (%s)", text, after(words, "violates PodSecurity "))
	case strings.Contains(words, "admission webhook"):
		return sandbox.Wrap(sandbox.NotSupported, err, "%s: an admission webhook of the cluster refuses it", text)
	case strings.Contains(words, "is being terminated"):
		return sandbox.Wrap(sandbox.Unavailable, err, "%s: the cluster's namespace is being deleted", text)
	case strings.Contains(words, " cannot "):
		return sandbox.Wrap(sandbox.Unavailable, err, "%s: the cluster does not let this server %s; its Role lacks that rule", text, verb)
	}
	return sandbox.Wrap(sandbox.NotSupported, err, "%s: the cluster refuses it", text)
}

// maxWords bounds what is shown of the cluster's own words.
const maxWords = 300

func after(words, mark string) string {
	_, rest, _ := strings.Cut(words, mark)
	return fmt.Sprintf("%.*s", maxWords, rest)
}

// Reasons of containers that wait for what will not come.
var (
	noImage  = map[string]bool{"ErrImageNeverPull": true, "ImagePullBackOff": true, "InvalidImageName": true}
	noStart  = map[string]bool{"CreateContainerConfigError": true, "CreateContainerError": true, "RunContainerError": true, "CrashLoopBackOff": true}
	notFound = []string{"not found", "NotFound", "not exist", "repository does not exist", "pull access denied"}
)

// problem says why a pod does not come to run, as far as its status tells that it never will; nil: it may.
func problem(p *corev1.Pod) error {
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range list {
			if err := containerProblem(&list[i]); err != nil {
				return err
			}
		}
	}
	if p.Status.Phase == corev1.PodFailed {
		return sandbox.Wrap(sandbox.Unavailable, errors.New(p.Status.Reason+": "+p.Status.Message), "the cluster ended the sandbox before it ran (%.80s)", p.Status.Reason)
	}
	if p.DeletionTimestamp != nil {
		return sandbox.Errorf(sandbox.Unavailable, "the sandbox was deleted while it started")
	}
	return nil
}

func containerProblem(c *corev1.ContainerStatus) error {
	switch wait, ended := c.State.Waiting, c.State.Terminated; {
	case wait != nil && (noImage[wait.Reason] || wait.Reason == "ErrImagePull" && contains(wait.Message, notFound)):
		cause := errors.New(wait.Reason + ": " + wait.Message)
		if c.Name != containerSandbox {
			return sandbox.Wrap(sandbox.Unavailable, cause, "the cluster cannot get the image of the sidecar, %.200q", c.Image)
		}
		return sandbox.Wrap(sandbox.NotFound, cause, "the cluster cannot get the image %.200q", c.Image)
	case wait != nil && noStart[wait.Reason]:
		return sandbox.Wrap(sandbox.Internal, errors.New(wait.Reason+": "+wait.Message), "a container of the sandbox did not start")
	case ended != nil:
		cause := fmt.Errorf("container %s: %s, exit code %d: %s", c.Name, ended.Reason, ended.ExitCode, ended.Message)
		if c.Name == containerSandbox {
			return sandbox.Wrap(sandbox.Internal, cause, "the daemon of the sandbox ended at once")
		}
		return sandbox.Wrap(sandbox.Internal, cause, "a container of the sandbox did not start")
	}
	return nil
}

func contains(text string, any []string) bool {
	for _, word := range any {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}

// unscheduled returns the scheduler's words for a pod that has no node; "" when it has one, or the scheduler has not looked yet.
func unscheduled(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return fmt.Sprintf("%.*s", maxWords, c.Message)
		}
	}
	return ""
}
