package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode"

	"connectrpc.com/connect"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/link"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/v1/sandboxv1connect"
)

const (
	// Grace is how long calls wait for a lost connection to come back before the sandbox counts as
	// lost. sandboxd dials again at least once a second.
	Grace = 3 * time.Second
	// Patience is the wait for a sandbox that is known to run all the same. On a machine that is too busy,
	// seconds pass until its sandboxd gets its turn. That should not cost what runs in it.
	Patience = 30 * time.Second
	// callTime bounds every call that does not stream: the longest is Kill, which waits about three seconds
	// for a tree to end.
	callTime = 15 * time.Second
	// fileChunk is what one message of a file transfer holds.
	fileChunk = 256 << 10
	maxDetail = 300
)

// ErrContract is wrapped by errors about answers that sandboxd must not send.
var ErrContract = errors.New("sandboxd broke the contract")

// Client calls the sandboxd of one sandbox. Its methods may be called concurrently.
type Client struct {
	link *link.Listener
	runs func(ctx context.Context) bool

	mu   sync.Mutex
	conn *link.Conn
	api  sandboxv1connect.SandboxServiceClient
}

// New makes a client. The caller keeps the listener, and closes it. runs reports whether the sandbox still runs, whether
// it answers or not; nil: unknown.
func New(l *link.Listener, runs func(ctx context.Context) bool) *Client {
	return &Client{link: l, runs: runs}
}

// await waits for a live connection: for Grace, or for Patience as long as the sandbox runs.
func (c *Client) await(ctx context.Context) (*link.Conn, error) {
	for began := time.Now(); ; {
		wait, cancel := context.WithTimeout(ctx, Grace)
		conn, err := c.link.Conn(wait)
		late := wait.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil || !late || c.runs == nil || time.Since(began) > Patience || !c.runs(ctx) {
			return conn, err
		}
	}
}

// reach returns the calls of the live connection.
func (c *Client) reach(ctx context.Context) (sandboxv1connect.SandboxServiceClient, *link.Conn, error) {
	conn, err := c.await(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, nil, contextError(ctx)
		}
		return nil, nil, sandbox.Wrap(sandbox.SandboxLost, err, "the sandbox does not answer")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != conn {
		c.conn = conn
		c.api = newAPI(conn)
	}
	return c.api, conn, nil
}

// call makes one short call. It is tried again on a new connection when the first one broke, so f
// must be idempotent.
func call[Req, Res any](ctx context.Context, c *Client, req *Req,
	f func(sandboxv1connect.SandboxServiceClient, context.Context, *connect.Request[Req]) (*connect.Response[Res], error),
) (*Res, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	for {
		api, conn, err := c.reach(ctx)
		if err != nil {
			return nil, err
		}
		res, err := f(api, ctx, connect.NewRequest(req))
		if err == nil {
			return res.Msg, nil
		}
		if !broken(ctx, conn, err) {
			return nil, mapError(ctx, err)
		}
	}
}

// broken tells whether a call failed because its connection is lost, rather than by an answer.
func broken(ctx context.Context, conn *link.Conn, err error) bool {
	// A sandboxd that is ending cancels its calls, and some of these hear so before the connection
	// breaks: no caller on this side cancelled them, so that is the same loss.
	if ctx.Err() != nil || connect.IsWireError(err) && connect.CodeOf(err) != connect.CodeCanceled {
		return false
	}
	// A write can fail a moment before the read loop notices the end.
	select {
	case <-conn.Done():
		return true
	case <-time.After(50 * time.Millisecond):
		return false
	case <-ctx.Done():
		return false
	}
}

func contextError(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return sandbox.Wrap(sandbox.Timeout, ctx.Err(), "the sandbox did not answer in time")
	}
	return ctx.Err()
}

var kinds = map[connect.Code]sandbox.Kind{
	connect.CodeNotFound:           sandbox.NotFound,
	connect.CodeInvalidArgument:    sandbox.Invalid,
	connect.CodeOutOfRange:         sandbox.Invalid,
	connect.CodeFailedPrecondition: sandbox.Conflict,
	connect.CodeAlreadyExists:      sandbox.Conflict,
	connect.CodeAborted:            sandbox.Conflict,
	connect.CodePermissionDenied:   sandbox.Forbidden,
	connect.CodeResourceExhausted:  sandbox.CapacityExceeded,
	connect.CodeUnimplemented:      sandbox.NotSupported,
	connect.CodeDeadlineExceeded:   sandbox.Timeout,
	connect.CodeUnavailable:        sandbox.SandboxLost,
	connect.CodeCanceled:           sandbox.SandboxLost, // by the sandbox: see broken
}

// mapError maps an error to its kind. The text of sandboxd is shown, for it speaks of the sandbox's
// own files and processes, but shortened and without control characters.
func mapError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return contextError(ctx)
	}
	var ce *connect.Error
	if !errors.As(err, &ce) {
		return sandbox.Wrap(sandbox.SandboxLost, err, "the sandbox does not answer")
	}
	if !connect.IsWireError(err) {
		switch ce.Code() {
		case connect.CodeResourceExhausted, connect.CodeInvalidArgument: // too long, or it cannot be decoded
			return contractError("%w", err)
		}
		return sandbox.Wrap(sandbox.SandboxLost, err, "the sandbox does not answer")
	}
	kind, ok := kinds[ce.Code()]
	if !ok {
		return sandbox.Wrap(sandbox.Internal, err, "the sandbox failed to do this")
	}
	return sandbox.Wrap(kind, err, "%s", clean(ce.Message()))
}

func contractError(format string, args ...any) error {
	cause := errors.Join(ErrContract, fmt.Errorf(format, args...))
	return sandbox.Wrap(sandbox.SandboxLost, cause, "the sandbox sent an answer that breaks the contract")
}

func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
	if len(s) > maxDetail {
		s = strings.ToValidUTF8(s[:maxDetail], "") + "…"
	}
	return s
}

// Status asks what runs. It also tells whether sandboxd is alive.
func (c *Client) Status(ctx context.Context) (*sandboxv1.StatusResponse, error) {
	res, err := call(ctx, c, &sandboxv1.StatusRequest{},
		func(api sandboxv1connect.SandboxServiceClient, ctx context.Context, r *connect.Request[sandboxv1.StatusRequest]) (*connect.Response[sandboxv1.StatusResponse], error) {
			return api.Status(ctx, r)
		})
	if err != nil {
		return nil, err
	}
	return res, checkStatus(res)
}

// Warm has interpreters wait for programs with this environment; see the contract.
func (c *Client) Warm(ctx context.Context, code []*sandboxv1.Code, env []string) error {
	_, err := call(ctx, c, &sandboxv1.WarmRequest{Code: code, Env: env},
		func(api sandboxv1connect.SandboxServiceClient, ctx context.Context, r *connect.Request[sandboxv1.WarmRequest]) (*connect.Response[sandboxv1.WarmResponse], error) {
			return api.Warm(ctx, r)
		})
	return err
}

// Tasks counts the processes and threads of each running exec, by its id, as sandboxd says.
func (c *Client) Tasks(ctx context.Context) (map[string]uint32, error) {
	res, err := call(ctx, c, &sandboxv1.StatusRequest{Tasks: true},
		func(api sandboxv1connect.SandboxServiceClient, ctx context.Context, r *connect.Request[sandboxv1.StatusRequest]) (*connect.Response[sandboxv1.StatusResponse], error) {
			return api.Status(ctx, r)
		})
	if err == nil {
		err = checkStatus(res)
	}
	tasks := make(map[string]uint32)
	for _, e := range res.GetExecs() {
		if e.GetRunning() {
			tasks[e.GetExecId()] = e.GetTasks()
		}
	}
	return tasks, err
}

// WriteStdin writes to an exec that was started with KeepStdin, waiting until the command took it;
// with closeIt stdin is closed after. It is not tried again: the data might arrive twice.
func (c *Client) WriteStdin(ctx context.Context, execID string, data []byte, closeIt bool) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	api, _, err := c.reach(ctx)
	if err != nil {
		return err
	}
	_, err = api.WriteStdin(ctx, connect.NewRequest(&sandboxv1.WriteStdinRequest{ExecId: execID, Data: data, Close: closeIt}))
	if err != nil {
		return mapError(ctx, err)
	}
	return nil
}

// Signal sends a signal to every process of an exec. Conflict: it has ended.
func (c *Client) Signal(ctx context.Context, execID string, signal int32) error {
	_, err := call(ctx, c, &sandboxv1.SignalRequest{ExecId: execID, Signal: signal},
		func(api sandboxv1connect.SandboxServiceClient, ctx context.Context, r *connect.Request[sandboxv1.SignalRequest]) (*connect.Response[sandboxv1.SignalResponse], error) {
			return api.Signal(ctx, r)
		})
	return err
}

// Resize tells the terminal of an exec its new size. Conflict: it has no terminal, or has ended.
func (c *Client) Resize(ctx context.Context, execID string, size sandbox.TerminalSize) error {
	req := &sandboxv1.ResizeRequest{ExecId: execID, Size: &sandboxv1.TerminalSize{Cols: uint32(size.Cols), Rows: uint32(size.Rows)}}
	_, err := call(ctx, c, req,
		func(api sandboxv1connect.SandboxServiceClient, ctx context.Context, r *connect.Request[sandboxv1.ResizeRequest]) (*connect.Response[sandboxv1.ResizeResponse], error) {
			return api.Resize(ctx, r)
		})
	return err
}

// Kill ends the process tree of an exec and returns once it is gone. Killing an ended one is no
// error.
func (c *Client) Kill(ctx context.Context, execID string) error {
	_, err := call(ctx, c, &sandboxv1.KillRequest{ExecId: execID},
		func(api sandboxv1connect.SandboxServiceClient, ctx context.Context, r *connect.Request[sandboxv1.KillRequest]) (*connect.Response[sandboxv1.KillResponse], error) {
			return api.Kill(ctx, r)
		})
	return err
}

// HoldDeadline stops the clock of an exec's deadline for at most d from now on; 0: it goes on at once. Holding an
// ended exec is no error. NotFound: sandboxd does not know it.
func (c *Client) HoldDeadline(ctx context.Context, execID string, d time.Duration) error {
	_, err := call(ctx, c, &sandboxv1.HoldDeadlineRequest{ExecId: execID, ForMs: uint32(d.Milliseconds())}, //nolint:gosec // at most a minute
		func(api sandboxv1connect.SandboxServiceClient, ctx context.Context, r *connect.Request[sandboxv1.HoldDeadlineRequest]) (*connect.Response[sandboxv1.HoldDeadlineResponse], error) {
			return api.HoldDeadline(ctx, r)
		})
	return err
}

// Forget drops an ended exec from sandboxd's memory. NotFound when it is not there.
func (c *Client) Forget(ctx context.Context, execID string) error {
	_, err := call(ctx, c, &sandboxv1.ForgetRequest{ExecId: execID},
		func(api sandboxv1connect.SandboxServiceClient, ctx context.Context, r *connect.Request[sandboxv1.ForgetRequest]) (*connect.Response[sandboxv1.ForgetResponse], error) {
			return api.Forget(ctx, r)
		})
	return err
}

// eof reports whether a stream ended well.
func eof(err error) bool { return err == nil || errors.Is(err, io.EOF) }
