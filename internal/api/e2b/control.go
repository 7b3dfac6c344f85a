package e2b

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// control serves the calls that begin, find and end sandboxes.
type control struct{ *Adapter }

const (
	// startTime is how long a sandbox may take to start; the SDKs wait for 60 s.
	startTime = 50 * time.Second
	// defaultTimeout and maxTimeout bound the life of a sandbox; both are those of E2B's second API.
	defaultTimeout = 5 * time.Minute
	maxTimeout     = 24 * time.Hour
)

type createBody struct {
	Template    string            `json:"templateID"`
	Timeout     *int              `json:"timeout"`
	AutoPause   bool              `json:"autoPause"`
	PauseMemory *bool             `json:"autoPauseMemory"`
	Metadata    map[string]string `json:"metadata"`
	Env         map[string]string `json:"envVars"`
	Network     json.RawMessage   `json:"network"`
	MCP         json.RawMessage   `json:"mcp"`
	IAM         json.RawMessage   `json:"iam"`
	Volumes     []json.RawMessage `json:"volumeMounts"`
}

// check refuses what is asked for and not there. That there is no internet is said by docs/e2b.md: all SDKs ask for it
// unless they are told not to.
func (b *createBody) check() error {
	given := func(v json.RawMessage) bool { return len(v) > 0 && string(v) != "null" && string(v) != "{}" }
	switch {
	case given(b.Network) && !closed(b.Network):
		return notSupported("network")
	case given(b.MCP):
		return notSupported("mcp")
	case given(b.IAM):
		return notSupported("iam")
	case len(b.Volumes) > 0:
		return notSupported("volumeMounts")
	case b.AutoPause && b.PauseMemory != nil && !*b.PauseMemory:
		return notSupported("autoPauseMemory: false")
	}
	for name := range b.Metadata {
		if strings.HasPrefix(name, labelPrefix) {
			return sandbox.Errorf(sandbox.Invalid, "metadata: names that begin with %s are the server's", labelPrefix)
		}
	}
	return sandbox.CheckLabels(b.Metadata)
}

// closed reports whether a network is only asked to take no traffic from outside, which no sandbox here does.
func closed(network json.RawMessage) bool {
	var n map[string]any
	return json.Unmarshal(network, &n) == nil && len(n) == 1 && n["allowPublicTraffic"] == false
}

// lifetime is the end of a sandbox that has so many seconds.
func lifetime(given *int) (time.Time, error) {
	d := defaultTimeout
	if given != nil {
		if *given < 0 || *given > int(maxTimeout/time.Second) {
			return time.Time{}, sandbox.Errorf(sandbox.Invalid, "timeout: want 0 to %d seconds", int(maxTimeout/time.Second))
		}
		d = time.Duration(*given) * time.Second
	}
	return time.Now().Add(d).UTC(), nil
}

// labelRequest has the fingerprint of the request that made a sandbox, so that one Idempotency-Key stands for one
// request.
const labelRequest = labelPrefix + "request"

func (a control) create(w http.ResponseWriter, r *http.Request, q request) error {
	var b createBody
	if err := readJSON(r, q, &b); err != nil {
		return err
	}
	end, err := lifetime(b.Timeout)
	if err = errors.Join(err, b.check()); err != nil {
		return err
	}
	unlock, err := a.lockCreate(r.Context(), q)
	if err != nil {
		return err
	}
	defer unlock()
	before := absent // the id of a request without a key is random
	if r.Header.Get(sandbox.KeyHeader) != "" {
		var view sandbox.ThreadView
		if view, before, err = a.repeated(r.Context(), q, b.fingerprint()); err != nil {
			return err
		}
		if before == made {
			writeJSON(w, http.StatusCreated, sandboxOf(r, view))
			return nil
		}
	}
	view, err := a.begin(r.Context(), q, &b, end)
	if err != nil {
		if before == absent && sandbox.KindOf(err) != sandbox.Conflict { // Conflict: another request made one meanwhile
			a.undo(r.Context(), q)
		}
		return err
	}
	a.known.note(q, view)
	writeJSON(w, http.StatusCreated, sandboxOf(r, view))
	return nil
}

// lockCreate makes requests with one Idempotency-Key come one after the other: the later ones find what the first
// one made, or that the server has undone it.
func (a control) lockCreate(ctx context.Context, q request) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	return a.locks.Lock(ctx, "create "+threadOf(q).String())
}

// fingerprint is the same for the same request. Labels are no place for values of an environment, so that only its
// names count.
func (b *createBody) fingerprint() string {
	text, err := json.Marshal([]any{b.Template, b.Timeout, b.AutoPause, b.Metadata, slices.Sorted(maps.Keys(b.Env))})
	if err != nil {
		return "" // it cannot be: all of them came from JSON
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// presence says what there is of a sandbox before a request that makes it.
type presence int

const (
	absent presence = iota
	begun           // a thread that is no sandbox of E2B's, or not yet: its server ended during the start
	made
)

// repeated returns the sandbox that an earlier request with the same Idempotency-Key made.
func (a control) repeated(ctx context.Context, q request, fingerprint string) (sandbox.ThreadView, presence, error) {
	v, err := a.known.find(ctx, q, true)
	switch {
	case err == nil:
		if before := v.Labels[labelRequest]; before != "" && before != fingerprint {
			return v, made, sandbox.Errorf(sandbox.Invalid, "this %s was used for another request: use another key for another sandbox", sandbox.KeyHeader)
		}
		if v.Sandbox == nil { // its container is gone; connect starts another one
			v.Sandbox = &sandbox.Info{Template: a.o.DefaultTemplate}
		}
		return v, made, nil
	case !errors.Is(err, errNoSandbox):
		return v, absent, err
	}
	v, err = a.o.Threads.Thread(ctx, q.caller, q.thread)
	switch {
	case sandbox.KindOf(err) == sandbox.NotFound:
		return v, absent, nil
	case err != nil:
		return v, absent, err
	case v.Labels[labelMade] != "":
		return v, made, sandbox.Errorf(sandbox.Unavailable, "the sandbox of this %s is being deleted: its time is over; try again", sandbox.KeyHeader)
	}
	return v, begun, nil
}

// begin starts the sandbox, and writes down when it ends.
func (a control) begin(ctx context.Context, q request, b *createBody, end time.Time) (sandbox.ThreadView, error) {
	t, err := templates(a).named(b.Template)
	if err != nil {
		return sandbox.ThreadView{}, err
	}
	labels := map[string]string{}
	maps.Copy(labels, b.Metadata)
	labels[labelMade], labels[labelEnds], labels[labelRequest] = "1", end.Format(time.RFC3339Nano), b.fingerprint()
	if b.AutoPause {
		labels[labelPauses] = "1"
	}
	o := sandbox.AcquireOptions{Template: t.Name, Labels: labels, Env: b.Env, Wait: startTime}
	info, err := a.o.Sandboxes.Acquire(ctx, q.caller, q.thread, o)
	if sandbox.KindOf(err) == sandbox.NotFound && templates(a).guessed(b.Template, t) {
		a.o.Log.Warn("a client of E2B gets the default template: the image of the other one is not there", "asked", b.Template, "template", t.Name, "error", err)
		o.Template = a.o.DefaultTemplate
		info, err = a.o.Sandboxes.Acquire(ctx, q.caller, q.thread, o)
	}
	if err == nil && info.State == sandbox.Starting {
		err = sandbox.Errorf(sandbox.CapacityExceeded, "the sandbox did not start within %s", startTime)
	}
	return sandbox.ThreadView{ThreadInfo: sandbox.ThreadInfo{Thread: threadOf(q), Labels: labels, CreatedAt: info.CreatedAt}, Sandbox: &info}, err
}

// undo deletes what is left of a sandbox that did not start. Only the request that began it may call this.
func (a control) undo(ctx context.Context, q request) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	if err := a.o.Threads.DeleteThread(ctx, q.caller, q.thread); err != nil && sandbox.KindOf(err) != sandbox.NotFound {
		a.o.Log.Warn("a sandbox of E2B that did not start could not be deleted", "thread", threadOf(q).String(), "error", err)
	}
}

// sandboxView is Sandbox, ListedSandbox and SandboxDetail of E2B's API.
type sandboxView struct {
	ID           string            `json:"sandboxID"`
	Template     string            `json:"templateID"`
	Alias        string            `json:"alias"`
	Client       string            `json:"clientID"`
	Version      string            `json:"envdVersion"`
	Token        string            `json:"envdAccessToken,omitempty"`
	TrafficToken string            `json:"trafficAccessToken,omitempty"`
	Domain       *string           `json:"domain"`
	Internet     bool              `json:"allowInternetAccess"`
	StartedAt    time.Time         `json:"startedAt"`
	EndAt        time.Time         `json:"endAt"`
	State        string            `json:"state"`
	CPU          int               `json:"cpuCount"`
	MemoryMB     int64             `json:"memoryMB"`
	DiskMB       int64             `json:"diskSizeMB"`
	Metadata     map[string]string `json:"metadata"`
}

const (
	stateRunning = "running"
	statePaused  = "paused"
)

// state is running as long as a command would find the sandbox as it was left: a sandbox without a container, or a frozen one,
// is paused.
func state(v sandbox.ThreadView) string {
	if v.Sandbox == nil {
		return statePaused
	}
	switch v.Sandbox.State {
	case sandbox.Paused, sandbox.Hibernated, sandbox.Lost, sandbox.Stopping:
		return statePaused
	}
	return stateRunning
}

// metadata are the caller's labels.
func metadata(labels map[string]string) map[string]string {
	out := map[string]string{}
	for name, value := range labels {
		if !strings.HasPrefix(name, labelPrefix) {
			out[name] = value
		}
	}
	return out
}

func (a control) describe(v sandbox.ThreadView) sandboxView {
	s := sandboxView{
		ID: v.ID, Client: "skerry", Version: envdVersion, StartedAt: v.CreatedAt.UTC(), EndAt: ends(v.Labels), State: state(v),
		CPU: 1, Metadata: metadata(v.Labels),
	}
	if v.Sandbox == nil {
		s.Template, s.Alias = a.o.DefaultTemplate, a.o.DefaultTemplate
		return s
	}
	s.Template, s.Alias = v.Sandbox.Template, v.Sandbox.Template
	for _, t := range a.o.Sandboxes.Templates() {
		if t.Name == v.Sandbox.Template {
			s.CPU, s.MemoryMB, s.DiskMB = max(1, int(t.Limits.CPUMillis/1000)), t.Limits.MemoryBytes>>20, t.Limits.DiskBytes>>20
		}
	}
	return s
}

// sandboxOf is the answer that an SDK makes its object of.
func sandboxOf(r *http.Request, v sandbox.ThreadView) map[string]any {
	key := token(r, v.ID)
	return map[string]any{
		"sandboxID": v.ID, "templateID": v.Sandbox.Template, "alias": v.Sandbox.Template, "clientID": "skerry", "envdVersion": envdVersion,
		"envdAccessToken": key, "trafficAccessToken": key, "domain": nil,
	}
}

// found is the sandbox of a request to the API server, where none is 404.
func (a control) found(ctx context.Context, q request) (sandbox.ThreadView, error) {
	v, err := a.known.find(ctx, q, true)
	return v, asNotFound(q, err)
}

func asNotFound(q request, err error) error {
	if errors.Is(err, errNoSandbox) {
		return sandbox.Errorf(sandbox.NotFound, "sandbox %q was not found", q.thread)
	}
	return err
}

func (a control) get(w http.ResponseWriter, r *http.Request, q request) error {
	v, err := a.found(r.Context(), q)
	if err != nil {
		return err
	}
	s := a.describe(v)
	s.Token = token(r, v.ID)
	writeJSON(w, http.StatusOK, s)
	return nil
}

func (a control) kill(w http.ResponseWriter, r *http.Request, q request) error {
	// A change of labels that found the sandbox before would make its thread anew.
	unlock, err := a.locks.Lock(r.Context(), labelLock(threadOf(q)))
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := a.found(r.Context(), q); err != nil {
		return err
	}
	if err := a.known.delete(r.Context(), q); err != nil {
		return err
	}
	a.known.forget(threadOf(q))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

type timeoutBody struct {
	Timeout *int  `json:"timeout"`
	Memory  *bool `json:"memory"`
}

func (a control) timeout(w http.ResponseWriter, r *http.Request, q request) error {
	var b timeoutBody
	if err := readJSON(r, q, &b); err != nil {
		return err
	}
	end, err := lifetime(b.Timeout)
	if err != nil {
		return err
	}
	v, err := a.found(r.Context(), q)
	if err != nil {
		return err
	}
	if state(v) == statePaused {
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s is paused: connect resumes it", q.thread)
	}
	if _, err := a.relabel(r.Context(), q, map[string]string{labelEnds: end.Format(time.RFC3339Nano)}); err != nil {
		return asNotFound(q, err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// refreshTime is how long a sandbox goes on after a refresh that names no duration, and maxRefresh how long at most: as E2B's.
const (
	refreshTime = 15
	maxRefresh  = 3600
)

// refresh makes the time of a sandbox that runs longer, never shorter.
func (a control) refresh(w http.ResponseWriter, r *http.Request, q request) error {
	var b struct {
		Duration *int `json:"duration"`
	}
	if err := readJSON(r, q, &b); err != nil {
		return err
	}
	seconds := refreshTime
	if b.Duration != nil {
		seconds = *b.Duration
	}
	if seconds < 0 || seconds > maxRefresh {
		return sandbox.Errorf(sandbox.Invalid, "duration: want 0 to %d seconds", maxRefresh)
	}
	end, err := lifetime(&seconds)
	if err != nil {
		return err
	}
	unlock, err := a.locks.Lock(r.Context(), labelLock(threadOf(q))) // against another one with a later end
	if err != nil {
		return err
	}
	defer unlock()
	v, err := a.found(r.Context(), q)
	if err != nil {
		return err
	}
	if state(v) == statePaused {
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s is paused: connect resumes it", q.thread)
	}
	if ends(v.Labels).Before(end) {
		if _, err := a.relabelLocked(r.Context(), q, map[string]string{labelEnds: end.Format(time.RFC3339Nano)}); err != nil {
			return asNotFound(q, err)
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// connect returns a sandbox that runs, and resumes a paused one. It makes the time of a running one longer, never
// shorter.
func (a control) connect(w http.ResponseWriter, r *http.Request, q request) error {
	return a.wake(w, r, q, false)
}

func (a control) resume(w http.ResponseWriter, r *http.Request, q request) error {
	return a.wake(w, r, q, true)
}

func (a control) wake(w http.ResponseWriter, r *http.Request, q request, onlyPaused bool) error {
	var b timeoutBody
	if err := readJSON(r, q, &b); err != nil {
		return err
	}
	if b.Memory != nil && !*b.Memory {
		return notSupported("resuming without memory")
	}
	end, err := lifetime(b.Timeout)
	if err != nil {
		return err
	}
	// A pause at the sandbox's former end comes before this, or finds the new one.
	unlock, err := a.locks.Lock(r.Context(), labelLock(threadOf(q)))
	if err != nil {
		return err
	}
	defer unlock()
	v, err := a.found(r.Context(), q)
	if err != nil {
		return err
	}
	status, paused := http.StatusOK, state(v) == statePaused
	if paused {
		status = http.StatusCreated
	} else {
		if onlyPaused {
			return sandbox.Errorf(sandbox.Conflict, "sandbox %s runs already", q.thread)
		}
		if before := ends(v.Labels); before.After(end) {
			end = before
		}
	}
	v, err = a.relabelLocked(r.Context(), q, map[string]string{labelEnds: end.Format(time.RFC3339Nano)})
	if err != nil {
		return asNotFound(q, err)
	}
	if state(v) == statePaused { // it runs only now, with its new end
		info, err := a.o.Sandboxes.Resume(r.Context(), q.caller, q.thread)
		if err != nil {
			return err
		}
		v.Sandbox = &info
		a.known.note(q, v)
	}
	writeJSON(w, status, sandboxOf(r, v))
	return nil
}

// pause freezes a sandbox; without memory its container ends, and its files stay.
func (a control) pause(w http.ResponseWriter, r *http.Request, q request) error {
	var b struct {
		Memory *bool `json:"memory"`
	}
	if err := readJSON(r, q, &b); err != nil {
		return err
	}
	v, err := a.found(r.Context(), q)
	if err != nil {
		return err
	}
	if state(v) == statePaused {
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s is paused already", q.thread)
	}
	if b.Memory != nil && !*b.Memory {
		_, err = a.o.Sandboxes.Hibernate(r.Context(), q.caller, q.thread, false)
	} else {
		_, err = a.o.Sandboxes.Pause(r.Context(), q.caller, q.thread)
	}
	if sandbox.KindOf(err) == sandbox.Conflict { // the SDKs read 409 as "paused"
		err = sandbox.Wrap(sandbox.Invalid, err, "a sandbox in which commands or code run cannot be paused: end them first")
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// health says whether a sandbox runs: 502 when it does not.
func (a control) health(w http.ResponseWriter, r *http.Request, q request) error {
	v, err := a.known.find(r.Context(), q, true)
	if err == nil && state(v) == statePaused {
		err = errNoSandbox
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
