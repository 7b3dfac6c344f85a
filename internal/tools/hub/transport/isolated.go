package transport

import (
	"context"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
)

// Isolation starts stdio servers in sandboxes of their own. Start returns when the program runs, or has
// failed to, which its Stderr says. Errors carry a sandbox.Kind.
type Isolation interface {
	Start(ctx context.Context, s IsolatedServer) (IsolatedProcess, error)
}

// IsolatedServer is what to start. All text is expanded.
type IsolatedServer struct {
	Server string        // its name in the configuration
	Owner  sandbox.Owner // empty for a server that all share
	Thread string        // that alone has it; "" for all of the owner's
	Plugin bool          // it came with a plugin
	Home   string        // name of its home folder: the same name is the same folder
	Argv   []string
	Env    []string // "NAME=value"; of a name that is there twice the last one counts
	Egress []string // hosts that it may reach: see package egress
	// Addresses are networks where these hosts may be, besides the public internet.
	Addresses []netip.Prefix
	Mounts    []sandbox.Mount
	Copy      *sandbox.FolderCopy // of a folder that it may write into; nil: none
}

// IsolatedProcess is a running server. Stdin ends with Stdin.Close, everything with Stop, which returns
// when it is gone.
type IsolatedProcess interface {
	Stdin() Stream
	Stdout() Stream
	Stderr() Stream
	Stop()
}

// Stream is one of the standard streams.
type Stream interface {
	io.ReadWriteCloser
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// IsolatedHome is the home folder of a server inside its sandbox.
const IsolatedHome = "/srv/home"

// StartIsolated starts the server in its sandbox. The goroutines that belong to it end with it; wg
// counts them.
func StartIsolated(ctx context.Context, i Isolation, s IsolatedServer, wg *sync.WaitGroup, log *slog.Logger, redact *serverconfig.Redactor) (*Process, error) {
	v, err := i.Start(ctx, s)
	if err != nil {
		return nil, err
	}
	p := &Process{stdin: v.Stdin(), stdout: v.Stdout(), stderr: v.Stderr(), log: log, Exited: make(chan struct{}), said: make(chan struct{}), tail: &tail{redact: redact}}
	p.line.r = p.stdout
	stop := make(chan struct{})
	var once sync.Once
	p.signal = func(unix.Signal) { once.Do(func() { close(stop) }) }
	wg.Go(p.readErrors)
	wg.Go(func() {
		select {
		case <-stop:
		case <-p.said: // the program has ended, and all that held its standard error
		}
		v.Stop()
		<-p.said
		close(p.Exited)
	})
	return p, nil
}
