package runtimeprobe

import (
	"context"
	"crypto/rand"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// checkTimeout bounds a whole probe. One takes 0.2 s on runc and 1 to 2 s on runsc; a host that has just
	// booted, or a machine without KVM, takes half a minute. A runtime that needs longer is of no use.
	checkTimeout = time.Minute
	// removeTimeout bounds clearing away, also when the caller has gone.
	removeTimeout = 20 * time.Second
	// lookEvery is how often the host looks for what the guest wrote.
	lookEvery = 5 * time.Millisecond
	// uid of the probe: nobody's, so that it owns nothing on the host.
	uid = 65534
)

// Starter is the part of a driver that a probe uses, without the check that called it.
type Starter interface {
	Create(ctx context.Context, spec sandbox.Spec) (sandbox.Instance, error)
	Inspect(ctx context.Context, id sandbox.ID) (sandbox.Instance, error)
	Remove(ctx context.Context, id sandbox.ID) error
}

// Config of Check.
type Config struct {
	Runtime string
	Image   string // as in sandbox.Spec
	Program string // host path of a static program that runs Main
	Dir     string // a folder of the host for scratch files; the engine must see it under this path
}

// Check starts one sandbox and checks that the runtime keeps its promises. problem is one sentence for
// people that says why the runtime cannot be used; "" when it can. err means that the answer is unknown
// (ctx ended, no scratch folder, the engine is away), so asking again makes sense. detail is for the log.
func Check(ctx context.Context, starter Starter, cfg Config) (problem string, detail, err error) {
	sweep(cfg.Dir)
	for range kills {
		if problem, detail, err = try(ctx, starter, cfg); err != nil || !errors.Is(detail, errUntold) {
			break
		}
	}
	return problem, detail, err
}

// kills is how many sandboxes may be killed without a word of their memory limit before the runtime is to blame: Docker
// loses that word when it hears of the end first, as it may on a busy host.
const kills = 3

// errUntold: a signal ended the sandbox, and the engine does not say that it was for the memory.
var errUntold = errors.New("exit code 137")

// try checks with one sandbox.
func try(ctx context.Context, starter Starter, cfg Config) (problem string, detail, err error) {
	dir, err := os.MkdirTemp(cfg.Dir, "p") // short: a socket's path has 108 bytes
	if err != nil {
		return "", nil, sandbox.Wrap(sandbox.Internal, err, "the runtime probe has no scratch folder")
	}
	defer os.RemoveAll(dir) //nolint:errcheck // scratch
	if err := os.Chown(dir, uid, uid); err != nil {
		return "", nil, sandbox.Wrap(sandbox.Internal, err, "the runtime probe cannot hand over its scratch folder")
	}
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	p := &probe{starter: starter, dir: dir, spec: probeSpec(cfg, dir)}
	problem, detail = p.run(ctx)
	cleanup, cancelCleanup := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancelCleanup()
	if left := starter.Remove(cleanup, p.spec.ID); left != nil && problem == "" {
		problem, detail = "its sandbox cannot be removed", left
	}
	if errors.Is(detail, sandbox.Unavailable) { // the engine went away, which says nothing of the runtime
		return "", nil, detail
	}
	if outer.Err() != nil {
		return "", nil, sandbox.Wrap(sandbox.Timeout, context.Cause(outer), "the runtime probe was interrupted")
	}
	return problem, detail, nil
}

// sweepAge is how old a scratch folder or a sandbox must be to count as left by a crash of a server: a probe
// takes seconds.
const sweepAge = 5 * time.Minute

// sweep removes what interrupted probes left.
func sweep(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // the probe says what is wrong with the folder
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > sweepAge {
			_ = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}

// Fleet is the part of a driver that SweepSandboxes uses.
type Fleet interface {
	List(ctx context.Context, labels map[string]string) ([]sandbox.Instance, error)
	Remove(ctx context.Context, id sandbox.ID) error
}

// SweepSandboxes removes the sandboxes of probes that a crash of a server interrupted, told by the process that made
// them, or by their age. What fails is logged: it prevents no probe.
func SweepSandboxes(ctx context.Context, fleet Fleet, log *slog.Logger) {
	old, err := fleet.List(ctx, nil)
	if err != nil {
		log.Warn("looking for old runtime probes failed", "error", err)
		return
	}
	for _, i := range old {
		if _, isProbe := i.Labels[LabelProbe]; isProbe && (ended(i.Labels[LabelMaker]) || time.Since(i.CreatedAt) > sweepAge) {
			if err := fleet.Remove(ctx, i.ID); err != nil {
				log.Warn("removing an old runtime probe failed", "sandbox", i.ID, "error", err)
			}
		}
	}
}

func probeSpec(cfg Config, dir string) sandbox.Spec {
	random := make([]byte, 8)
	_, _ = rand.Read(random) // never fails
	return sandbox.Spec{
		ID:      sandbox.ID("skerry-" + hex.EncodeToString(random)),
		Image:   cfg.Image,
		Runtime: cfg.Runtime,
		UID:     uid,
		Daemon:  cfg.Program,
		Args:    []string{Arg},
		Mounts:  []sandbox.Mount{{Source: dir, Target: sandbox.UserDataDir}},
		Limits: sandbox.Limits{
			MemoryBytes: memoryLimit, CPUMillis: 2000, PIDs: 64, OpenFiles: 256,
			FileBytes: 1 << 20, TmpBytes: 1 << 20, DiskBytes: 1 << 20,
		},
		Labels: map[string]string{LabelProbe: cfg.Runtime, LabelMaker: maker()},
	}
}

// RequireStatic reports, as an Internal error, a program that needs shared libraries: the image of a
// probe has none.
func RequireStatic(program string) error {
	f, err := elf.Open(program)
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the program of the runtime probe cannot be read")
	}
	defer f.Close() //nolint:errcheck // only read
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return sandbox.Errorf(sandbox.Internal, "the program of the runtime probe must be static (built with CGO_ENABLED=0)")
		}
	}
	return nil
}

// probe is one run of Check.
type probe struct {
	starter Starter
	dir     string
	spec    sandbox.Spec
}

func (p *probe) run(ctx context.Context) (problem string, detail error) {
	listener, err := net.Listen("unix", filepath.Join(p.dir, hostSocket))
	if err != nil {
		return "the probe cannot make a socket", err
	}
	heard := make(chan error, 1)
	go func() { // ends with the listener
		conn, err := listener.Accept()
		if err == nil {
			err = answer(conn)
		}
		heard <- err
	}()
	defer func() {
		_ = listener.Close()
		<-heard //nolint:errcheck // only waits for the end
	}()
	if err := os.Chown(filepath.Join(p.dir, hostSocket), uid, uid); err != nil {
		return "the probe cannot hand over its socket", err
	}
	if _, err := p.starter.Create(ctx, p.spec); err != nil {
		return "a sandbox does not start on it" + reason(err), err
	}
	found, err := p.awaitReport(ctx)
	if err != nil {
		return "a sandbox on it does not answer", err
	}
	switch {
	case found.HostSocket != "":
		return "code in the sandbox does not reach a socket of the host (runsc needs --host-uds=all)", errors.New(found.HostSocket)
	case found.NoNewPrivs != 1:
		return "no_new_privs is not in force", nil
	case found.Seccomp != 2:
		return "the system call filter is not in force (runsc needs --oci-seccomp)", nil
	}
	if err := greet(filepath.Join(p.dir, guestSocket)); err != nil {
		return "the host does not reach a socket made in the sandbox (runsc needs --host-uds=all)", err
	}
	return p.awaitOOM(ctx)
}

// reason returns what of an error is fit for people.
func reason(err error) string {
	var e *sandbox.Error
	if !errors.As(err, &e) {
		return ""
	}
	return ": " + e.Detail
}

func (p *probe) awaitReport(ctx context.Context) (report, error) {
	var found report
	for {
		data, err := os.ReadFile(filepath.Join(p.dir, reportFile))
		if err == nil {
			return found, json.Unmarshal(data, &found)
		}
		if err := p.look(ctx); err != nil {
			return found, err
		}
	}
}

// look waits a little, and fails when the sandbox has ended or the caller stops waiting.
func (p *probe) look(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(lookEvery):
		return nil
	}
}

const notByItsLimit = "a sandbox out of memory ended, but not by its memory limit"

// awaitOOM waits until the guest, which takes more memory than it may have, is ended.
func (p *probe) awaitOOM(ctx context.Context) (problem string, detail error) {
	for {
		there, err := p.starter.Inspect(ctx, p.spec.ID)
		if err != nil {
			return "the state of its sandbox cannot be read", err
		}
		if _, err := os.Stat(filepath.Join(p.dir, survivedFile)); err == nil {
			return "the memory limit is not in force (runsc must not run with --ignore-cgroups)", nil
		}
		if there.State == sandbox.Lost {
			switch {
			case there.OOMKilled:
				return "", nil
			case there.ExitCode == 137:
				return notByItsLimit, errUntold
			}
			return notByItsLimit, fmt.Errorf("exit code %d", there.ExitCode)
		}
		if err := p.look(ctx); err != nil {
			return "a sandbox that takes more memory than its limit does not end", err
		}
	}
}
