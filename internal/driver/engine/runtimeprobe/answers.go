package runtimeprobe

import (
	"context"
	"errors"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Answers remembers for the life of a driver what probes found, by runtime. One probe runs at a time.
type Answers struct {
	turn     chan struct{} // has one place: who puts a token in may probe; guards problems
	problems map[string]string
	last     map[string]string // what the probe before found, where it is not remembered yet
}

// CheckUserNamespace is Check for a driver that can give a sandbox a user namespace: it tries with one, and, if that
// cannot be used, without. without says why there is to be none, "" when there is. What only took too long is
// not tried without: a slow host must not take a wall away.
func CheckUserNamespace(ctx context.Context, starter func(userNamespace bool) Starter, cfg Config) (problem, without string, detail, err error) {
	problem, detail, err = Check(ctx, starter(true), cfg)
	if err != nil || problem == "" || errors.Is(detail, context.DeadlineExceeded) || errors.Is(detail, sandbox.Timeout) {
		return problem, "", detail, err
	}
	without, first := problem, detail
	problem, detail, err = Check(ctx, starter(false), cfg)
	if err != nil || problem != "" {
		return problem, "", detail, err
	}
	return "", without, first, nil
}

// NewAnswers returns an empty Answers.
func NewAnswers() *Answers {
	return &Answers{turn: make(chan struct{}, 1), problems: make(map[string]string), last: make(map[string]string)}
}

// Ask returns the problem of a runtime, "" for none. The first time it calls probe, which answers as
// Check does; an error of probe is given back and not remembered, nor is an answer that only came of
// too little time: on a host under load the next probe may go better. Any other problem is remembered when it was
// found twice: the sandbox of one probe may have been killed. A Timeout error says that ctx ended while another
// call probed.
func (a *Answers) Ask(ctx context.Context, runtime string, probe func() (problem string, detail, err error)) (string, error) {
	select {
	case a.turn <- struct{}{}:
	case <-ctx.Done():
		return "", sandbox.Wrap(sandbox.Timeout, context.Cause(ctx), "another call probes the runtimes")
	}
	defer func() { <-a.turn }()
	if problem, done := a.problems[runtime]; done {
		return problem, nil
	}
	problem, detail, err := probe()
	if err != nil {
		return "", err
	}
	if problem == "" || problem == a.last[runtime] && !errors.Is(detail, context.DeadlineExceeded) {
		a.problems[runtime] = problem
	}
	a.last[runtime] = problem
	return problem, nil
}
