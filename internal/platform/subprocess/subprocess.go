package subprocess

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"
)

const (
	// maxTime is what a call may take from its start, and maxProcessor what it may compute, in seconds.
	maxTime      = 15 * time.Second
	maxProcessor = 10
	// maxMemory is what the process may have beside its stacks, and maxStack is the deepest of them.
	maxMemory = 1 << 30
	maxStack  = 256 << 20
	// maxAnswer bounds what comes back.
	maxAnswer = 64 << 20
	// maxProblem bounds what a process that failed says of it.
	maxProblem = 4 << 10
)

// self is this program, even after another was put in its place.
const self = "/proc/self/exe"

// turns bounds the processes that run at once on this machine's processors.
var turns = make(chan struct{}, max(runtime.NumCPU(), 2))

// Func is a function that runs in a process of its own.
type Func[Q, A any] struct{ name string }

// New names a function. It is for variables of packages only: in the process that is to run f, New does so and does not
// return. An error of f says what is wrong with the question; Call returns its text.
func New[Q, A any](name string, f func(Q) (A, error)) Func[Q, A] {
	if len(os.Args) == 1 && os.Args[0] == argument(name) {
		os.Exit(serve(os.Stdin, os.Stdout, f))
	}
	return Func[Q, A]{name: name}
}

func argument(name string) string { return "skerry-subprocess:" + name }

// answer is what the process writes.
type answer[A any] struct {
	Answer  A      `json:"answer"`
	Refused string `json:"refused,omitempty"`
}

// Error is what Call returns when the function refused the question, or the question is too much for the limits.
type Error struct{ Why string }

func (e *Error) Error() string { return e.Why }

// ErrTooMuch is what Call returns for a process that a limit ended.
var ErrTooMuch = &Error{fmt.Sprintf("the text is nested too deeply, or takes more than %d s or %d MiB to read", maxProcessor, maxMemory>>20)}

// Call runs the function. The error is an *Error, that of ctx, or one of this machine.
func (f Func[Q, A]) Call(ctx context.Context, question Q) (A, error) {
	return f.call(ctx, question)
}

func (f Func[Q, A]) call(ctx context.Context, question Q, files ...*os.File) (A, error) {
	var none A
	in, err := json.Marshal(question)
	if err != nil {
		return none, err
	}
	select {
	case turns <- struct{}{}:
		defer func() { <-turns }()
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	out, problem := bounded{max: maxAnswer, whole: true}, bounded{max: maxProblem}
	cmd := exec.CommandContext(limited, self)
	cmd.Args, cmd.Env, cmd.Dir = []string{argument(f.name)}, []string{}, "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &problem
	cmd.ExtraFiles = files
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	var ended *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return none, context.Cause(ctx)
	case errors.As(err, &ended) && ended.ExitCode() == failed:
		return none, fmt.Errorf("subprocess %s: %s", f.name, bytes.TrimSpace(problem.data))
	case errors.As(err, &ended), limited.Err() != nil, errors.Is(err, errFull):
		return none, ErrTooMuch
	case err != nil:
		return none, fmt.Errorf("subprocess %s: %w", f.name, err)
	}
	var a answer[A]
	if err := json.Unmarshal(out.data, &a); err != nil {
		return none, fmt.Errorf("subprocess %s: %w", f.name, err)
	}
	if a.Refused != "" {
		return none, &Error{a.Refused}
	}
	return a.Answer, nil
}

var errFull = errors.New("more than fits")

// bounded keeps the first bytes of what is written. When it wants the whole, more is an error.
type bounded struct {
	data  []byte
	max   int
	whole bool
}

func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.max-len(b.data))
	b.data = append(b.data, p[:n]...)
	if n < len(p) && b.whole {
		return n, errFull
	}
	return len(p), nil
}

// failed is the exit code of a process that could not do its work, whatever the question was.
const failed = 70

// serve answers one question.
func serve[Q, A any](in io.Reader, out io.Writer, f func(Q) (A, error)) int {
	if err := confine(); err != nil {
		fmt.Fprintln(os.Stderr, "limits cannot be set:", err)
		return failed
	}
	var question Q
	if err := json.NewDecoder(in).Decode(&question); err != nil {
		fmt.Fprintln(os.Stderr, "the question cannot be read:", err)
		return failed
	}
	var a answer[A]
	if answered, err := f(question); err != nil {
		a.Refused = err.Error()
	} else {
		a.Answer = answered
	}
	if err := json.NewEncoder(out).Encode(a); err != nil {
		fmt.Fprintln(os.Stderr, "the answer cannot be written:", err)
		return failed
	}
	return 0
}
