// Package servers runs MCP servers of the stdio kind in sandboxes of their own: a program that came
// with a plugin, or that an administrator does not trust with the host. Each has a uid of its own, its
// own home folder, and no network but the hosts of its list.
//
// Unlike the sandbox of a thread it serves one connection and ends with it: after a crash of the
// server nothing is adopted, all that is left over is removed.
package servers

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/platform/ownedsocket"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/egress"
)

const (
	// Role is the value of sandbox.LabelRole on these sandboxes.
	Role = "mcp-server"
	// HomeDir is where a server's own folder is inside; it outlives the sandbox.
	HomeDir = "/srv/home"

	removeTimeout = 30 * time.Second
	// homeEvery is how often a home folder is copied from a sandbox that does not see this server's disk: of a server that ends
	// by itself, what came after the last time is lost. homeTimeout bounds once, also before the sandbox is removed.
	homeEvery   = 30 * time.Second
	homeTimeout = 20 * time.Second
)

// Options are the parts that it works with. All but Alive and Refused are needed.
type Options struct {
	Driver driver.Driver
	// Home returns the host folder of a server's home, which is bounded, and the uid that owns it. The same
	// server always has the same one.
	Home func(ctx context.Context, s Spec) (dir string, uid int, err error)
	// Template says image, runtime and limits.
	Template sandbox.Template
	RunDir   string // for sockets: <data>/run
	Daemon   string // host path of skerry-sandboxd
	Install  string // id of the data folder
	Replica  string // id of this process, among those of the data folder
	// Alive reports whether another process lives, whose servers are left alone; nil: there is none.
	Alive     func(replica string) bool
	StartTime time.Duration
	Log       *slog.Logger
	// Refused is told of each connection that a server tried and may not make.
	Refused func(server string, o sandbox.Owner, target string)
}

// Sandboxes starts tool servers. Its methods may be called concurrently.
type Sandboxes struct{ o Options }

// New removes what former processes of the same data folder left over.
func New(ctx context.Context, o Options) (*Sandboxes, error) {
	s := &Sandboxes{o: o}
	return s, s.sweep(ctx, func(replica string) bool { return o.Alive == nil || !o.Alive(replica) })
}

// Sweep removes the servers of another process, which has ended.
func (s *Sandboxes) Sweep(ctx context.Context, replica string) error {
	return s.sweep(ctx, func(r string) bool { return r == replica })
}

func (s *Sandboxes) sweep(ctx context.Context, of func(replica string) bool) error {
	found, err := s.o.Driver.List(ctx, map[string]string{sandbox.LabelInstall: s.o.Install, sandbox.LabelRole: Role})
	if err != nil {
		return fmt.Errorf("tool servers: %w", err)
	}
	var wg sync.WaitGroup
	for _, inst := range found {
		if of(inst.Labels[sandbox.LabelReplica]) {
			wg.Go(func() { s.remove(inst.ID) })
		}
	}
	wg.Wait()
	return nil
}

// Spec is one server to run.
type Spec struct {
	Server string        // its name in the configuration, for labels and the log
	Owner  sandbox.Owner // whose server it is; empty for a shared one
	Thread string        // that alone has it; "" for all of the owner's
	Plugin bool          // it came with a plugin
	Home   string        // name of its home folder: the same name is the same folder
	Argv   []string
	Env    []string // "NAME=value", beside HOME, PATH, the proxy and what the template sets
	Egress egress.Rules
	// Addresses are networks where the hosts of Egress may be, besides the public internet.
	Addresses []netip.Prefix
	Mounts    []sandbox.Mount     // host folders, read-only inside
	Copy      *sandbox.FolderCopy // of a folder inside; nil: none
}

// Server is a running one.
type Server struct {
	// Stdio is its standard input (Write, CloseWrite) and output (Read); Stderr is read only.
	Stdio, Stderr *net.UnixConn

	s     *Sandboxes
	id    sandbox.ID
	dir   string
	proxy *egress.Proxy
	once  sync.Once
	ended chan struct{} // closed by Stop
	homes sync.WaitGroup
}

// Start starts a server and returns when its program runs, or could not be started, which Stderr says.
// Errors: those of the driver; Unavailable when the sandbox does not come up in time.
func (s *Sandboxes) Start(ctx context.Context, spec Spec) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.StartTime)
	defer cancel()
	home, uid, err := s.o.Home(ctx, spec)
	if err != nil {
		return nil, err
	}
	v := &Server{s: s, id: sandbox.NewID(), ended: make(chan struct{})}
	v.dir = filepath.Join(s.o.RunDir, string(v.id))
	if err := s.start(ctx, v, spec, home, uid); err != nil {
		v.Stop()
		return nil, err
	}
	if remote, ok := s.o.Driver.(driver.Remote); ok {
		v.homes.Go(func() { v.keepHome(remote) })
	}
	return v, nil
}

// keepHome copies the server's writes to its home folder from a sandbox with a disk of its own. It does so
// until it is stopped, and then a last time.
func (v *Server) keepHome(remote driver.Remote) {
	tick := time.NewTicker(homeEvery)
	defer tick.Stop()
	for last := false; !last; {
		select {
		case <-tick.C:
		case <-v.ended:
			last = true
		}
		ctx, cancel := context.WithTimeout(context.Background(), homeTimeout)
		_, err := remote.Pull(ctx, v.id)
		cancel()
		if err != nil {
			v.s.o.Log.Warn("the home folder of an MCP server is not copied from its sandbox", "sandbox", string(v.id), "error", err)
		}
	}
}

func (s *Sandboxes) start(ctx context.Context, v *Server, spec Spec, home string, uid int) error {
	sock := filepath.Join(v.dir, "sock")
	if err := errors.Join(os.MkdirAll(v.dir, 0o711), os.MkdirAll(sock, 0o755)); err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the sandbox cannot be prepared")
	}
	ln, err := ownedsocket.Listen(sock, filepath.Base(sandbox.StdioSocket), uid)
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the sandbox cannot be prepared")
	}
	defer ln.Close() // two connections
	if !spec.Egress.Empty() {
		way, err := ownedsocket.Listen(sock, filepath.Base(sandbox.EgressSocket), uid)
		if err != nil {
			return sandbox.Wrap(sandbox.Internal, err, "the sandbox cannot be prepared")
		}
		v.proxy = egress.Serve(way, egress.Options{Rules: spec.Egress, Addresses: spec.Addresses, Log: s.o.Log.With("server", spec.Server), Refused: func(target string) {
			if s.o.Refused != nil {
				s.o.Refused(spec.Server, spec.Owner, target)
			}
		}})
	}
	if _, err := s.o.Driver.Create(ctx, s.sandbox(v, spec, home, sock, uid)); err != nil {
		return err
	}
	if v.Stdio, err = accept(ctx, ln); err == nil {
		if err = s.describe(ctx, v.Stdio, spec); err == nil {
			v.Stderr, err = accept(ctx, ln)
		}
	}
	if err != nil {
		return sandbox.Wrap(sandbox.Unavailable, err, "the sandbox of the server did not come up")
	}
	return nil
}

func (s *Sandboxes) sandbox(v *Server, spec Spec, home, sock string, uid int) sandbox.Spec {
	labels := map[string]string{
		sandbox.LabelInstall: s.o.Install, sandbox.LabelRole: Role, sandbox.LabelTemplate: s.o.Template.Name, sandbox.LabelReplica: s.o.Replica,
	}
	if spec.Owner.Tenant != "" {
		labels[sandbox.LabelTenant], labels[sandbox.LabelUser] = spec.Owner.Tenant, spec.Owner.User
	}
	mounts := []sandbox.Mount{{Source: sock, Target: sandbox.RunDir, ReadOnly: true}, {Source: home, Target: HomeDir}}
	for _, m := range spec.Mounts {
		mounts = append(mounts, sandbox.Mount{Source: m.Source, Target: m.Target, ReadOnly: true})
	}
	return sandbox.Spec{
		ID: v.id, Image: s.o.Template.Image, Runtime: s.o.Template.Runtime, UID: uid,
		Daemon: s.o.Daemon, Args: []string{"toolserver"}, Hostname: "mcp", Mounts: mounts, Limits: s.o.Template.Limits, Labels: labels,
		Loosen: s.o.Template.Loosened,
	}
}

// accept takes the next connection of the sandbox's PID 1.
func accept(ctx context.Context, ln *net.UnixListener) (*net.UnixConn, error) {
	if end, ok := ctx.Deadline(); ok {
		_ = ln.SetDeadline(end)
	}
	defer context.AfterFunc(ctx, func() { _ = ln.SetDeadline(time.Unix(1, 0)) })()
	return ln.AcceptUnix()
}

// describe says what to run: see sandbox.ToolServerStart.
func (s *Sandboxes) describe(ctx context.Context, conn *net.UnixConn, spec Spec) error {
	start := sandbox.ToolServerStart{Argv: spec.Argv, Env: environment(s.o.Template.Env, spec), Dir: HomeDir, Egress: !spec.Egress.Empty(), Copy: spec.Copy}
	text, err := json.Marshal(start)
	if err != nil {
		return err
	}
	if end, ok := ctx.Deadline(); ok {
		if err := conn.SetWriteDeadline(end); err != nil {
			return err
		}
		defer func() { _ = conn.SetWriteDeadline(time.Time{}) }()
	}
	frame := binary.LittleEndian.AppendUint32(nil, uint32(len(text)))
	_, err = conn.Write(append(frame, text...))
	return err
}

// Stop ends the server with all that it started, and returns when it is gone. It may be called twice.
func (v *Server) Stop() {
	v.once.Do(func() {
		for _, c := range []*net.UnixConn{v.Stdio, v.Stderr} {
			if c != nil {
				_ = c.Close()
			}
		}
		if v.proxy != nil {
			if err := v.proxy.Close(); err != nil {
				v.s.o.Log.Debug("egress proxy", "error", err)
			}
		}
		close(v.ended)
		v.homes.Wait()
		v.s.remove(v.id)
	})
}

// remove takes away a sandbox and its sockets. What cannot be removed now is found by the next New.
func (s *Sandboxes) remove(id sandbox.ID) {
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	if err := s.o.Driver.Remove(ctx, id); err != nil {
		s.o.Log.Error("sandbox of an MCP server not removed", "sandbox", string(id), "error", err)
	}
	if err := os.RemoveAll(filepath.Join(s.o.RunDir, string(id))); err != nil {
		s.o.Log.Error("run folder not removed", "sandbox", string(id), "error", err)
	}
}
