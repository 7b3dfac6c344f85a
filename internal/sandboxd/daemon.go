package sandboxd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/platform/retry"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/link"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/v1/sandboxv1connect"
	"github.com/skerry-sandbox/skerry/internal/sandboxd/files"
	"github.com/skerry-sandbox/skerry/internal/sandboxd/interp"
	"github.com/skerry-sandbox/skerry/internal/sandboxd/process"
	"github.com/skerry-sandbox/skerry/internal/sandboxd/procfs"
)

const (
	dialFirst = 20 * time.Millisecond // pause after the first failed dial; it doubles
	dialMost  = time.Second
	closeTime = 5 * time.Second
	// maxRequest holds a run request with the largest stdin and the largest code.
	maxRequest = sandbox.MaxStdinBytes + sandbox.MaxCodeBytes + 4<<20
)

// Options configure a daemon. Default returns those of a real sandbox; tests change the paths.
type Options struct {
	ControlSocket string
	BridgeSocket  string
	// Dial connects to one of the two sockets; nil: by its path.
	Dial Dialer
	// BridgeAddrs are the TCP addresses that code finds the bridge at. Only the first must work: the
	// others are given up where the network has no such address.
	BridgeAddrs []string
	// Supervisor is the command line that runs process.Supervise.
	Supervisor []string
	// Wasm is the command line that runs a WebAssembly module, without the module; nil: none can run.
	Wasm []string
	// Orphans: see process.Options. Right for PID 1.
	Orphans      bool
	Roots        []files.Root
	UserDataDir  string // spill files are made in it
	WorkspaceDir string // working folder of an exec that names none
	CodeAPIDir   string
	TempDir      string
	BaseEnv      []string // of every exec; that of the request replaces it
	Cgroups      string   // the folder in which the sandbox sees its cgroup
	// WaitingAge is how long an interpreter waits for its program. It may not be needed any more, and what it
	// holds is the sandbox's memory.
	WaitingAge time.Duration
	Log        *slog.Logger
}

// Default returns the options of a real sandbox. exe is the path of this binary.
func Default(exe string, log *slog.Logger) Options {
	return Options{
		ControlSocket: sandbox.ControlSocket,
		BridgeSocket:  sandbox.BridgeSocket,
		BridgeAddrs:   []string{fmt.Sprintf("127.0.0.1:%d", sandbox.BridgePort), fmt.Sprintf("[::1]:%d", sandbox.BridgePort)},
		Supervisor:    []string{exe, process.SuperviseCommand},
		Wasm:          []string{exe, sandbox.WasmCommand},
		Orphans:       true,
		// What is there is the kernel's, or sandboxd's own.
		Roots:        []files.Root{{Path: "/", Writable: true, Without: []string{"/dev", "/proc", "/sys", sandbox.RunDir}}},
		UserDataDir:  sandbox.UserDataDir,
		WorkspaceDir: sandbox.WorkspaceDir,
		CodeAPIDir:   sandbox.CodeAPIDir,
		TempDir:      "/tmp",
		Cgroups:      procfs.Cgroups,
		WaitingAge:   10 * time.Minute,
		BaseEnv: []string{
			"HOME=" + sandbox.HomeDir, "LANG=C.UTF-8",
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		},
		Log: log,
	}
}

// Run does the daemon's work until ctx ends; then it ends all execs. It returns an error only when
// it cannot begin, or when no server can come any more.
func Run(ctx context.Context, o Options) error {
	execs, err := process.New(process.Options{
		Supervisor: o.Supervisor, Orphans: o.Orphans, SpillRoot: o.UserDataDir, OOMCounters: procfs.OOMCounters, Log: o.Log,
	})
	if err != nil {
		return err
	}
	s := &service{o: o, execs: execs, files: files.New(o.Roots), leftProcesses: leftProcesses{execs}}
	defer func() {
		s.standbys.close()
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer cancel()
		execs.Close(bounded)
		s.standbys.wg.Wait() // they end with what they wait for
	}()
	s.standbys.waiting, s.standbys.making, s.standbys.end = map[string][]*waiting{}, map[string]int{}, make(chan struct{})
	s.interp = interp.New(interp.Options{TempDir: o.TempDir, CodeAPIDir: o.CodeAPIDir, Path: envValue(o.BaseEnv, "PATH"), NodeVersion: s.nodeVersion, Wasm: o.Wasm, Forks: process.CanFork()})
	mux := http.NewServeMux()
	mux.Handle(sandboxv1connect.NewSandboxServiceHandler(s, connect.WithReadMaxBytes(maxRequest)))

	ctx, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end()
	for i, addr := range o.BridgeAddrs {
		b := &bridge{addr: addr, optional: i > 0, socket: o.BridgeSocket, dialer: o.Dial, log: o.Log}
		wg.Go(func() { b.run(ctx) })
	}
	return serveLink(ctx, o, mux)
}

// errAbandoned ends a sandbox that no server will ever look for again: the folder of its sockets is deleted. Its
// container should have been, before; an engine that lost sight of it (its shim was killed, say) left it running.
var errAbandoned = errors.New("the server has deleted the folder of this sandbox")

// serveLink keeps the connection to the server until ctx ends, or there can be none any more.
func serveLink(ctx context.Context, o Options, handler http.Handler) error {
	dir, err := os.Open(filepath.Dir(o.ControlSocket))
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // only looked at
	secret, said, pauses := "", "", retry.Doubling(dialFirst, dialMost)
	for ctx.Err() == nil {
		conn, fresh, err := dialLink(ctx, o, secret)
		if err == nil {
			secret, said = fresh, ""
			pauses.Reset()
			o.Log.Info("connected to the server")
			err = link.Serve(ctx, conn, handler)
			if err == nil {
				err = errors.New("connection lost")
			}
		}
		if text := err.Error(); text != said && ctx.Err() == nil {
			o.Log.Warn("no connection to the server", "error", err) // once, not with each try
			said = text
		}
		if deleted(dir) {
			return errAbandoned
		}
		select {
		case <-time.After(pauses.NextBackOff()):
		case <-ctx.Done():
		}
	}
	return nil
}

func dialLink(ctx context.Context, o Options, secret string) (conn net.Conn, fresh string, err error) {
	if o.Dial == nil {
		return link.Dial(ctx, o.ControlSocket, secret)
	}
	raw, err := o.Dial(ctx, o.ControlSocket)
	if err != nil {
		return nil, "", err
	}
	return link.Greet(ctx, raw, secret)
}

// Dialer connects to a socket of the server.
type Dialer func(ctx context.Context, socket string) (*net.UnixConn, error)

// dial connects by the path where there is no other way.
func (d Dialer) dial(ctx context.Context, socket string) (*net.UnixConn, error) {
	if d != nil {
		return d(ctx, socket)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

// deleted reports whether a folder has surely been deleted since it was opened.
func deleted(dir *os.File) bool {
	var s unix.Stat_t
	return unix.Fstat(int(dir.Fd()), &s) == nil && s.Nlink == 0
}
