package client

import (
	"context"
	"errors"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"
	"golang.org/x/time/rate"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/v1/sandboxv1connect"
)

const (
	maxChunk   = 64 << 10
	maxPath    = 4 << 10
	maxExecs   = 1024
	maxStrings = 64
	maxWord    = 128 // bytes of an id, a version or a language

	// A terminal is followed at most so fast, in bytes a second; sandboxd is to be slower.
	liveRate  = 32 << 20
	liveBurst = 1 << 20
	minCost   = 4 << 10 // bytes that a smaller event counts as

	// sandboxd slows down the reading of small pieces: each stream has fewer events than these at once, and
	// then one a second. Full pieces are larger than fullPiece.
	maxEvents  = 128 << 10
	lateEvents = 4 // a second
	fullPiece  = 512
)

// Emit gets the events of an exec in order, the exit included; it may keep them. An error from
// it ends the call (not the exec) with that error.
type Emit func(*sandboxv1.Event) error

// Run starts an exec and calls emit for each of its events, until the exit, which it returns too.
// When ctx ends, or emit fails, the exec goes on. When the connection breaks and comes back, the
// events go on without a gap (but see RunRequest.terminal); SandboxLost when it does not come back.
//
// Invalid: the request breaks a rule. CapacityExceeded: too many execs run.
func (c *Client) Run(ctx context.Context, req *sandboxv1.RunRequest, emit Emit) (*sandboxv1.Exit, error) {
	f := follower{c: c, execID: req.GetExecId(), run: req, emit: emit, limit: req.GetMaxOutputBytes(), spillDir: req.GetSpillDir(), began: time.Now()}
	if f.limit == 0 {
		f.limit = sandbox.DefaultOutputBytes
	}
	if req.GetTerminal() != nil {
		f.live = rate.NewLimiter(liveRate, liveBurst)
	}
	return f.follow(ctx)
}

// Attach calls emit for each event of an exec after number after (0: all). NotFound: sandboxd does
// not know the exec. Invalid: it has no event after.
func (c *Client) Attach(ctx context.Context, execID string, after uint64, emit Emit) (*sandboxv1.Exit, error) {
	f := follower{c: c, execID: execID, emit: emit, last: after, limit: sandbox.MaxOutputBytes, began: time.Now()}
	return f.follow(ctx)
}

// follower reads the events of one exec over as many connections as it takes.
type follower struct {
	c        *Client
	execID   string
	run      *sandboxv1.RunRequest // nil: attach only
	emit     Emit
	last     uint64 // number of the newest event
	limit    uint64 // of the output of each stream
	spillDir string // "" = any folder in the user's data
	got      [2]uint64
	pieces   uint64 // events with output
	began    time.Time
	exit     *sandboxv1.Exit
	failure  error // of emit, or of a check
	// live is set for a terminal: its output has no limit but how fast it comes.
	live *rate.Limiter
}

func (f *follower) follow(ctx context.Context) (*sandboxv1.Exit, error) {
	for {
		api, conn, err := f.c.reach(ctx)
		if err != nil {
			return nil, err
		}
		err = f.stream(ctx, api)
		switch {
		case f.failure != nil:
			return nil, f.failure
		case f.exit != nil:
			return f.exit, nil
		case eof(err):
			return nil, contractError("the events of the exec ended without an exit")
		case !broken(ctx, conn, err):
			err = mapError(ctx, err)
			if f.run != nil && f.last > 0 && errors.Is(err, sandbox.NotFound) {
				return nil, sandbox.Wrap(sandbox.SandboxLost, err, "the sandbox lost the exec")
			}
			return nil, err
		}
	}
}

// stream reads one stream to its end. A Run whose first event did not arrive is sent again: sandboxd
// knows it by its id when it had arrived.
func (f *follower) stream(ctx context.Context, api sandboxv1connect.SandboxServiceClient) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var s *connect.ServerStreamForClient[sandboxv1.Event]
	var err error
	if f.run != nil && f.last == 0 {
		s, err = api.Run(ctx, connect.NewRequest(f.run))
	} else {
		s, err = api.Attach(ctx, connect.NewRequest(&sandboxv1.AttachRequest{ExecId: f.execID, After: f.last}))
	}
	if err != nil {
		return err
	}
	defer s.Close() // after cancel has ended a stream that is not at its end
	defer cancel()
	for s.Receive() {
		if f.failure = f.take(ctx, s.Msg()); f.failure != nil {
			return f.failure
		}
		if f.exit != nil {
			// The end of the stream is next. Reading it spares both sides a reset, but nothing is
			// owed to a sandbox that keeps it back.
			defer time.AfterFunc(100*time.Millisecond, cancel).Stop()
		}
	}
	return s.Err()
}

// take checks an event and passes it on.
func (f *follower) take(ctx context.Context, e *sandboxv1.Event) error {
	if f.exit != nil {
		return contractError("event %d after the exit", e.GetN())
	}
	// A terminal has let go of what was not fetched in time.
	if e.GetN() != f.last+1 && (f.live == nil || e.GetN() <= f.last) {
		return contractError("event %d after event %d", e.GetN(), f.last)
	}
	// Its clock is ours, but its word is not: a record must not claim another day.
	if now := time.Now(); now.Sub(time.UnixMilli(e.GetUnixMs())).Abs() > 24*time.Hour {
		e.UnixMs = now.UnixMilli()
	}
	switch k := e.GetKind().(type) {
	case *sandboxv1.Event_Started:
		if e.GetN() != 1 {
			return contractError("event %d says that the exec started", e.GetN())
		}
	case *sandboxv1.Event_Output:
		if err := f.checkOutput(ctx, k.Output); err != nil {
			return err
		}
	case *sandboxv1.Event_Exit:
		if err := f.checkExit(k.Exit); err != nil {
			return err
		}
	default:
		return contractError("event %d is of no known kind", e.GetN())
	}
	f.last = e.GetN()
	if err := f.emit(e); err != nil {
		return err
	}
	f.exit = e.GetExit()
	return nil
}

func (f *follower) checkOutput(ctx context.Context, o *sandboxv1.Output) error {
	n := uint64(len(o.GetData()))
	if n == 0 || n > maxChunk {
		return contractError("output event of %d bytes", n)
	}
	if f.live != nil {
		if o.GetStderr() {
			return contractError("stderr of a terminal")
		}
		return f.live.WaitN(ctx, int(max(n, minCost)))
	}
	if f.pieces++; f.pieces > f.mostPieces() {
		return contractError("%d events with output", f.pieces)
	}
	i := 0
	if o.GetStderr() {
		i = 1
	}
	if f.got[i] += n; f.got[i] > f.limit {
		return contractError("more output than was asked for")
	}
	return nil
}

// mostPieces is how many events with output there may be by now. Each takes memory besides its bytes.
func (f *follower) mostPieces() uint64 {
	return maxEvents + 2*f.limit/fullPiece + lateEvents*uint64(time.Since(f.began).Seconds())
}

func (f *follower) checkExit(x *sandboxv1.Exit) error {
	if x.GetStatus() < sandboxv1.Exit_STATUS_EXITED || x.GetStatus() > sandboxv1.Exit_STATUS_FAILED_TO_START {
		return contractError("exit status %d", x.GetStatus())
	}
	if x.GetCode() < 0 || x.GetCode() > 255 {
		return contractError("exit code %d", x.GetCode())
	}
	for _, s := range []*sandboxv1.Stream{x.GetStdout(), x.GetStderr()} {
		if uint64(len(s.GetTail())) > f.limit-f.limit/2 || uint64(len(s.GetTail())) > s.GetTotal() {
			return contractError("tail of %d bytes", len(s.GetTail()))
		}
		if p := s.GetSpillPath(); p != "" && !f.spillAllowed(p) {
			return contractError("spill path %.100q", p)
		}
	}
	if x.GetLeftProcesses() > 0 && f.run != nil && !f.run.GetLeaveProcesses() {
		return contractError("%d processes left of an exec that may leave none", x.GetLeftProcesses())
	}
	if err := f.checkResults(x); err != nil {
		return err
	}
	x.DurationUs, x.CpuUs, x.MaxRssBytes = max(x.GetDurationUs(), 0), max(x.GetCpuUs(), 0), max(x.GetMaxRssBytes(), 0)
	x.Reason = clean(x.GetReason())
	return nil
}

// checkResults bounds what a run in a context displayed. What it says is checked by its reader.
func (f *follower) checkResults(x *sandboxv1.Exit) error {
	if f.run != nil && f.run.GetContextId() == "" && (len(x.GetResults()) > 0 || x.GetContextLost() || x.GetResultsLeftOut() > 0) {
		return contractError("results of an exec that runs in no context")
	}
	total := 0
	for _, r := range x.GetResults() {
		total += len(r)
	}
	if len(x.GetResults()) > sandbox.MaxResults || total > sandbox.MaxResultBytes {
		return contractError("%d results of %d bytes", len(x.GetResults()), total)
	}
	return nil
}

func (f *follower) spillAllowed(p string) bool {
	dir := f.spillDir
	if f.run == nil {
		dir = sandbox.UserDataDir
	}
	return len(p) <= maxPath && utf8.ValidString(p) && dir != "" && path.Clean(p) == p &&
		strings.HasPrefix(p, path.Clean(dir)+"/") && !strings.ContainsFunc(p, func(r rune) bool { return r < ' ' })
}

// checkStatus bounds what the answer holds.
func checkStatus(s *sandboxv1.StatusResponse) error {
	if len(s.GetExecs()) > maxExecs || len(s.GetLanguages()) > maxStrings || len(s.GetRoots()) > maxStrings || len(s.GetVersion()) > maxWord {
		return contractError("a status with %d execs, %d languages, %d roots", len(s.GetExecs()), len(s.GetLanguages()), len(s.GetRoots()))
	}
	for _, e := range s.GetExecs() {
		if len(e.GetExecId()) > maxWord {
			return contractError("an exec id of %d bytes", len(e.GetExecId()))
		}
	}
	for _, l := range s.GetLanguages() {
		if len(l) > maxWord {
			return contractError("a language of %d bytes", len(l))
		}
	}
	for _, r := range s.GetRoots() {
		if len(r) > maxPath {
			return contractError("a root of %d bytes", len(r))
		}
	}
	if len(s.GetInterpreters()) > maxStrings {
		return contractError("a status with %d interpreters", len(s.GetInterpreters()))
	}
	for _, i := range s.GetInterpreters() {
		if len(i.GetLanguage()) > maxWord || !utf8.ValidString(i.GetLanguage()) || i.GetMemoryBytes() < 0 {
			return contractError("an interpreter of %.140q with %d bytes", i.GetLanguage(), i.GetMemoryBytes())
		}
	}
	if len(s.GetContexts()) > maxStrings {
		return contractError("a status with %d contexts", len(s.GetContexts()))
	}
	for _, c := range s.GetContexts() {
		if len(c.GetContextId()) > maxWord || len(c.GetLanguage()) > maxWord || len(c.GetCwd()) > maxPath {
			return contractError("a context of %d, %d and %d bytes", len(c.GetContextId()), len(c.GetLanguage()), len(c.GetCwd()))
		}
	}
	return nil
}
