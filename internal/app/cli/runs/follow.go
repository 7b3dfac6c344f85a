package runs

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/tools/argform"
	sdk "github.com/skerry-sandbox/skerry/sdk/go"
)

const (
	// outputAtOnce is what the server keeps of each stream. Half of it comes as it is printed. What is longer
	// than all of it comes at the end, from a file of the thread.
	outputAtOnce = 16 << 20
	stdinAtOnce  = 64 << 10

	startedWait = 3 * time.Second  // that an interruption waits for the id of what it is to end
	killWait    = 10 * time.Second // for the end of an exec that is interrupted
)

// exitPipe is what shells say of a program that SIGPIPE ended.
const exitPipe = exit.Code(128 + 13)

// Run is an exec that the user watches.
type Run struct {
	Thread *sdk.Thread
	Begin  func(context.Context) iter.Seq2[sdk.Event, error]
	Stdin  io.Reader // nil: none
	Stdout io.Writer
	Stderr io.Writer
}

// Follow starts the exec and shows it until it ends. When ctx ends, or the output cannot be written any more, it ends
// the exec. All output is shown, or the error says what is missing.
func (r Run) Follow(ctx context.Context) (*client.Result, error) {
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE) // so that a write to a closed pipe is an error, and the exec is ended
	defer signal.Stop(broken)
	stream, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	f := &follower{run: r, started: make(chan struct{}), out: newShown(r.Stdout), errs: newShown(r.Stderr)}
	ended := make(chan struct{})
	var interrupting sync.WaitGroup
	defer interrupting.Wait()
	defer close(ended)
	interrupting.Go(func() {
		select {
		case <-ctx.Done():
			f.interrupt(ctx, ended)
			stop()
		case <-ended:
		}
	})
	res, err := f.follow(stream)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, err
	}
	return res, f.rest(ctx, res)
}

// follower shows one exec.
type follower struct {
	run       Run
	started   chan struct{} // closed when exec is known
	exec      string
	out, errs *shown
}

// shown is a stream as far as it was written.
type shown struct {
	w   io.Writer
	n   int64
	sum hash.Hash
}

func newShown(w io.Writer) *shown { return &shown{w: w, sum: sha256.New()} }

func (s *shown) Write(p []byte) (int, error) {
	s.n += int64(len(p))
	s.sum.Write(p) //nolint:errcheck // a hash never fails
	return s.w.Write(p)
}

// interrupt ends the exec, and waits a moment for its end.
func (f *follower) interrupt(ctx context.Context, ended <-chan struct{}) {
	select {
	case <-f.started:
	case <-ended:
		return
	case <-time.After(startedWait):
		return // the request is cancelled before it starts anything
	}
	f.kill(ctx)
	select {
	case <-ended:
	case <-time.After(killWait):
	}
}

// kill ends the exec, whatever became of ctx.
func (f *follower) kill(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killWait)
	defer cancel()
	var answered *sdk.Error
	if err := f.run.Thread.Kill(ctx, f.exec); err != nil && (!errors.As(err, &answered) || answered.Code != sdk.Conflict) {
		fmt.Fprintf(f.run.Stderr, "skerry: exec %s may still run: %s\n", argform.Line(f.exec, 64), argform.Line(err.Error(), 200)) //nolint:errcheck // nothing else can be told
	}
}

// follow passes on the events until the exec ends.
func (f *follower) follow(ctx context.Context) (*client.Result, error) {
	for e, err := range f.run.Begin(ctx) {
		if err != nil {
			return nil, client.Explain(err)
		}
		if f.exec == "" && e.ExecID != "" {
			f.exec = e.ExecID
			close(f.started)
			f.send(ctx)
		}
		if e.Type == sdk.Exit {
			return e.Result, nil
		}
		if err := f.show(e); err != nil {
			if f.exec != "" {
				f.kill(ctx)
			}
			if errors.Is(err, syscall.EPIPE) {
				return nil, exitPipe
			}
			return nil, fmt.Errorf("the output cannot be written, and the command was ended: %w", err)
		}
	}
	return nil, errors.New("the stream ended before the exec did")
}

// show writes what one event says.
func (f *follower) show(e sdk.Event) (err error) {
	switch e.Type {
	case sdk.Stdout:
		_, err = f.out.Write(e.Data)
	case sdk.Stderr:
		_, err = f.errs.Write(e.Data)
	case sdk.ApprovalRequired:
		id := argform.Line(e.Approval.ID, 64)
		_, err = fmt.Fprintf(f.run.Stderr, "skerry: %s waits for an approval: skerry approvals show %s, approve %s, deny %s\n", argform.Line(e.Approval.Tool, 200), id, id, id)
	}
	return err
}

// send passes the input on until it ends, the command does not take more, or ctx ends. Nothing ends a read of the
// user's input: the goroutine that waits in one ends with the program.
func (f *follower) send(ctx context.Context) {
	if f.run.Stdin == nil {
		return
	}
	go func() {
		buf := make([]byte, stdinAtOnce)
		for {
			n, err := f.run.Stdin.Read(buf)
			if n > 0 && f.run.Thread.WriteStdin(ctx, f.exec, buf[:n]) != nil {
				return // the command has ended, or closed its input
			}
			if err != nil {
				_ = f.run.Thread.CloseStdin(ctx, f.exec) // as above
				return
			}
		}
	}()
}

// rest shows what did not come as events, and reports what is missing.
func (f *follower) rest(ctx context.Context, res *client.Result) error {
	if !res.Truncated {
		return nil
	}
	whole := 0
	for _, s := range []struct {
		name, text string
		shown      *shown
		path       *string
	}{{"stdout", res.Stdout, f.out, res.StdoutPath}, {"stderr", res.Stderr, f.errs, res.StderrPath}} {
		if s.path == nil {
			continue
		}
		whole++
		if err := f.copyRest(ctx, s.shown, *s.path); err != nil {
			return incomplete(res, fmt.Sprintf("%s was cut; all of it may be in %s of the thread: %v", s.name, argform.Line(*s.path, 300), err))
		}
		if strings.Contains(s.text, firstPart+*s.path) {
			return incomplete(res, s.name+" was cut: it is larger than what the server keeps of an output")
		}
	}
	if whole == 0 {
		return incomplete(res, "the output was cut, and the server could not keep the rest: the thread's disk may be full")
	}
	return nil
}

// firstPart stands in a result before the path of a file that has not all of an output either.
const firstPart = "the first part of the output, up to the limit, is in "

// incomplete says what is missing, and how the command ended itself.
func incomplete(res *client.Result, what string) error {
	how := res.Status
	if res.ExitCode != nil {
		how = fmt.Sprintf("code %d", *res.ExitCode)
	}
	return exit.With(exit.Partial, "%s (the command ended with %s)", what, how)
}

// errOther says that a file does not go on where the events ended: the sandbox can write it, too.
var errOther = errors.New("the file does not go on where the output ended")

// copyRest writes what the file has behind what was shown.
func (f *follower) copyRest(ctx context.Context, s *shown, path string) error {
	file, err := f.run.Thread.Get(ctx, path)
	if err != nil {
		return client.Explain(err)
	}
	defer file.Close()
	head := sha256.New()
	if _, err := io.CopyN(head, file, s.n); err != nil || string(head.Sum(nil)) != string(s.sum.Sum(nil)) {
		return errors.Join(errOther, err)
	}
	_, err = io.Copy(s.w, file)
	if errors.Is(err, syscall.EPIPE) {
		return exitPipe
	}
	return err
}
