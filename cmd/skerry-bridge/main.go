// Skerry-bridge stands beside a sandbox that does not see the server's disk, as a container of the same pod: the server dials
// it, and it is the sandbox's only way to the server (docs/decisions/0032-kubernetes.md). It reads no environment.
//
//	skerry-bridge --certs /certs --run /run/skerry --mount /mnt/skills=/volumes/skills:ro --mount /mnt/user-data=/volumes/files:rw
//	skerry-bridge --await 30s --run DIR    waits until one serves there
//	skerry-bridge --remove FOLDER      removes a folder of a volume, with all that is in it
//	skerry-bridge --nest               starts the sandbox of the working directory, too: see package nest
//	skerry-bridge --relay SOCKET       connects its standard streams with a bridge that --nest started
//
// With --daemon it puts skerry-sandboxd, which lies beside it, where the sandbox finds it, before it listens.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/platform/anchor"
	"github.com/skerry-sandbox/skerry/internal/platform/buildinfo"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar/nest"
	"github.com/skerry-sandbox/skerry/internal/sidecar/pki"
	"github.com/skerry-sandbox/skerry/internal/sidecar/pod"
	"github.com/skerry-sandbox/skerry/internal/sidecar/tree"
	"github.com/skerry-sandbox/skerry/internal/sidecar/wire"
)

// Codes of the exit: 2 is for a command line that cannot be right.
const (
	exitFailed = 1
	exitUsage  = 2
)

// gcPercent keeps the memory small: lists of large trees live for long, and there is one such process for each sandbox.
const gcPercent = 30

func main() {
	nest.InsideIfAsked()
	debug.SetGCPercent(gcPercent)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	os.Exit(command(ctx, os.Args[1:], os.Stdout, os.Stderr, nil))
}

// config is the command line.
type config struct {
	certs, listen, run, daemon string
	await                      time.Duration
	remove                     string
	nest, anchor, version      bool
	relay                      string
	mounts                     []pod.Mount
}

// command runs one command line. bound, if not nil, is told where it listens.
func command(ctx context.Context, args []string, stdout, stderr io.Writer, bound func(net.Addr)) int {
	c, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, "skerry-bridge:", err)
		return exitUsage
	}
	switch {
	case c.version:
		fmt.Fprintln(stdout, "skerry-bridge", buildinfo.Version())
	case c.await > 0:
		ctx, cancel := context.WithTimeout(ctx, c.await)
		defer cancel()
		err = pod.Await(ctx, c.run)
	case c.remove != "":
		err = tree.RemoveFolder(ctx, c.remove)
	case c.relay != "":
		err = relay(ctx, c.relay)
	case c.nest:
		err = serveNested(ctx, slog.New(slog.NewJSONHandler(stderr, nil)), stderr)
	default:
		err = serve(ctx, c, slog.New(slog.NewJSONHandler(stderr, nil)), bound)
	}
	if err != nil {
		fmt.Fprintln(stderr, "skerry-bridge:", err)
		return exitFailed
	}
	return 0
}

func parse(args []string, stderr io.Writer) (config, error) {
	var c config
	f := flag.NewFlagSet("skerry-bridge", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&c.certs, "certs", "", "folder with "+pki.CertFile+", "+pki.KeyFile+" and "+pki.AuthorityFile)
	f.StringVar(&c.listen, "listen", ":7443", "address to listen on")
	f.StringVar(&c.run, "run", sandbox.RunDir, "folder of the sockets; the sandbox must not be able to write there")
	f.BoolVar(&c.anchor, "anchor", false, "wait for skerry-sandboxd at "+anchor.Address+", too: it does not see the sockets of --run (gVisor)")
	f.StringVar(&c.daemon, "daemon", "", "folder to put skerry-sandboxd into; the sandbox must not be able to write there")
	f.DurationVar(&c.await, "await", 0, "wait at most so long for a bridge that serves in --run, then exit: 0 when there is one")
	f.StringVar(&c.remove, "remove", "", "remove this folder with all that is in it, and end")
	f.BoolVar(&c.nest, "nest", false, "start the sandbox that "+nest.OrderFile+" in the working directory describes, and end with it")
	f.StringVar(&c.relay, "relay", "", "connect standard input and output with the bridge at this socket, and end")
	f.BoolVar(&c.version, "version", false, "print the version, and end")
	f.Func("mount", "a tree of the sandbox, as TARGET=FOLDER:ro or TARGET=FOLDER:rw (as the sandbox may use it), or :kept (rw, and it outlives the pod); may be given again", func(s string) error {
		m, err := parseMount(s)
		c.mounts = append(c.mounts, m)
		return err
	})
	if err := f.Parse(args); err != nil {
		return c, err
	}
	if f.NArg() > 0 {
		return c, fmt.Errorf("%q is no flag", f.Arg(0))
	}
	if c.await < 0 {
		return c, fmt.Errorf("--await %v: want more than 0", c.await)
	}
	if c.await == 0 && !c.version && c.remove == "" && !c.nest && c.relay == "" && c.certs == "" {
		return c, errors.New("--certs is missing: the folder of the certificate")
	}
	return c, nil
}

func parseMount(s string) (pod.Mount, error) {
	target, rest, ok := strings.Cut(s, "=")
	i := strings.LastIndexByte(rest, ':')
	if !ok || i < 0 || !slices.Contains([]string{"ro", "rw", "kept"}, rest[i+1:]) {
		return pod.Mount{}, fmt.Errorf("want TARGET=FOLDER:ro, TARGET=FOLDER:rw or TARGET=FOLDER:kept, as in %s=/volumes/skills:ro", sandbox.SkillsDir)
	}
	return pod.Mount{Target: target, Folder: rest[:i], Writable: rest[i+1:] != "ro", Kept: rest[i+1:] == "kept"}, nil
}

func serve(ctx context.Context, c config, log *slog.Logger, bound func(net.Addr)) error {
	// The sandbox may have the same uid, and must not read the memory in which the key is.
	if err := closed(); err != nil {
		return err
	}
	conf, id, err := pki.PodTLS(c.certs)
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	// The sandbox is made when it listens: all that it needs is there before.
	if err := pod.MakeFolders(c.mounts); err != nil {
		return err
	}
	if c.daemon != "" {
		if err := copyDaemon(c.daemon); err != nil {
			return fmt.Errorf("skerry-sandboxd: %w", err)
		}
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.listen)
	if err != nil {
		return err
	}
	log.Info("skerry-bridge serves", "sandbox", id, "address", ln.Addr().String(), "version", buildinfo.Version())
	if bound != nil {
		bound(ln.Addr())
	}
	o := pod.Options{TLS: conf, Run: c.run, Mounts: c.mounts, Log: log}
	if c.anchor {
		o.Anchor = anchor.Address
	}
	return pod.Serve(ctx, ln, o)
}

// closed keeps the memory of this process from the code of the sandbox, which has its uid.
func closed() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("non-dumpable: %w", err)
	}
	return nil
}

func relay(ctx context.Context, socket string) error {
	if err := closed(); err != nil {
		return err
	}
	return nest.Relay(ctx, socket, os.Stdin, os.Stdout)
}

// serveNested starts a sandbox, and is its sidecar until it ends.
func serveNested(ctx context.Context, log *slog.Logger, said io.Writer) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	order, err := nest.Read(dir)
	if err != nil {
		return err
	}
	conf, id, err := pki.PodTLS(nest.CertsFolder)
	if err != nil {
		return fmt.Errorf("certificate: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wait, err := nest.Start(ctx, dir, order, said) // first: a process that is closed cannot map the uids of its child
	if err != nil {
		return err
	}
	if err := closed(); err != nil {
		return err
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "unix", filepath.Join(dir, nest.SocketFile))
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		ended <- wait()
		cancel()
	}()
	log.Info("skerry-bridge serves", "sandbox", id, "version", buildinfo.Version())
	err = pod.Serve(ctx, ln, pod.Options{TLS: conf, Run: nest.Run(dir), Mounts: nest.Mounts(dir), Pace: wire.Far, Log: log})
	cancel()
	return errors.Join(err, <-ended)
}

// copyDaemon copies the skerry-sandboxd that lies beside this program.
func copyDaemon(dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return pod.CopyDaemon(filepath.Join(filepath.Dir(self), filepath.Base(sandbox.DaemonPath)), dir)
}
