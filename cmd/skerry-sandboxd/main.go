// Skerry-sandboxd is PID 1 of every sandbox: it runs what the server asks for and nothing else. It
// takes no flags and no configuration; all it needs is at the fixed paths of package sandbox. Only
// what its template loosens it is told: see sandbox.LoosenArgument.
//
// "skerry-sandboxd toolserver" is PID 1 of the sandbox of an MCP server: it runs that one program.
//
// "skerry-sandboxd anchored" with nothing or any of these behind it reaches the server through the sidecar alone, and ends with
// it: see package anchor.
//
// "skerry-sandboxd confine" puts limits and a system call filter on itself and becomes what follows, where the engine that starts
// sandboxes does not: see package confine.
//
// "skerry-sandboxd wasm MODULE.wasm ARGS…" runs a WebAssembly module, for anything in the sandbox: see package wasm.
//
// "skerry-sandboxd supervise" is what it starts for each exec, and of no use to people.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/platform/anchor"
	"github.com/skerry-sandbox/skerry/internal/platform/confine"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/link"
	"github.com/skerry-sandbox/skerry/internal/sandboxd"
	"github.com/skerry-sandbox/skerry/internal/sandboxd/process"
	"github.com/skerry-sandbox/skerry/internal/sandboxd/wasm"
)

const (
	// maxProcs bounds the threads that sandboxd keeps: they count against the sandbox's pids.
	maxProcs = 4
	// threads are started ahead. When a fork bomb has used up the pids, the Go runtime must not need
	// another one: it would end the process, and with PID 1 the sandbox.
	threads = 12
)

func main() {
	process.SuperviseIfAsked()
	confine.IfAsked()
	wasm.RunIfAsked(os.Environ())
	args := os.Args[1:]
	anchored := len(args) > 0 && args[0] == anchor.Argument
	if anchored {
		args = args[1:]
	}
	toolServer := len(args) == 1 && args[0] == sandboxd.ToolServerCommand
	mayTrace := len(args) == 1 && args[0] == sandbox.LoosenArgument(sandbox.LoosenPtrace)
	if len(args) > 0 && !mayTrace && !toolServer {
		fmt.Printf("skerry-sandboxd %s, protocol %d\n", link.Version(), link.Protocol)
		return
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	dial, err := prepare(log, anchored)
	if err != nil {
		log.Error("sandboxd ends", "error", err)
		os.Exit(1)
	}
	if toolServer {
		os.Exit(runToolServer(log, dial))
	}
	if err := run(log, dial, mayTrace); err != nil {
		log.Error("sandboxd ends", "error", err)
		os.Exit(1)
	}
}

// prepare comes before any code of the sandbox. dial is nil where the sockets of the server are files.
func prepare(log *slog.Logger, anchored bool) (dial sandboxd.Dialer, err error) {
	// First of all: the memory of this process holds the secret of the link, and what runs here has its uid.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("non-dumpable: %w", err)
	}
	if !anchored {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), anchor.ConnectTime)
	defer cancel()
	held, err := anchor.Connect(ctx, anchor.Address)
	if err != nil {
		return nil, err
	}
	go func() {
		<-held.Done()
		log.Error("sandboxd ends", "error", "its sidecar has ended")
		os.Exit(1)
	}()
	return held.Dial, nil
}

func runToolServer(log *slog.Logger, dial sandboxd.Dialer) int {
	runtime.GOMAXPROCS(1)
	ctx, stop := takeSignals()
	defer stop()
	options := sandboxd.DefaultToolServer(log)
	options.Dial = dial
	return sandboxd.RunToolServer(ctx, options)
}

func run(log *slog.Logger, dial sandboxd.Dialer, mayTrace bool) error {
	runtime.GOMAXPROCS(min(runtime.NumCPU(), maxProcs))
	startThreads(threads)
	ctx, stop := takeSignals()
	defer stop()
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	options := sandboxd.Default(exe, log)
	options.Dial = dial
	if mayTrace {
		options.Supervisor = append(options.Supervisor, process.TraceArgument)
	}
	return sandboxd.Run(ctx, options)
}

// takeSignals installs a handler for every signal, so that none from a neighbour of the same uid ends or
// stops this process. PID 1 is ended by SIGKILL from outside only; any other process, as in tests,
// ends on SIGTERM and SIGINT.
func takeSignals() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	all := make(chan os.Signal, 64)
	for n := syscall.Signal(1); n <= 64; n++ {
		// The runtime uses SIGURG for itself, and package process takes SIGCHLD; neither does harm.
		if n != syscall.SIGURG && n != syscall.SIGCHLD {
			signal.Notify(all, n)
		}
	}
	go func() {
		for s := range all {
			if os.Getpid() != 1 && (s == syscall.SIGTERM || s == syscall.SIGINT) {
				cancel()
			}
		}
	}()
	return ctx, cancel
}

// startThreads makes the runtime start n threads, which it then keeps.
func startThreads(n int) {
	started, release := make(chan struct{}), make(chan struct{})
	for range n {
		go func() {
			runtime.LockOSThread()
			started <- struct{}{}
			<-release
			runtime.UnlockOSThread()
		}()
	}
	for range n {
		<-started
	}
	close(release)
}
