package hooks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/load"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/client"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/link"
	"github.com/skerry-sandbox/skerry/internal/tools/bridge"
	"github.com/skerry-sandbox/skerry/internal/workspace"
	"github.com/skerry-sandbox/skerry/internal/workspace/copies"
	"github.com/skerry-sandbox/skerry/internal/workspace/volumes"
)

// socketsHook makes the sockets that sandboxd and the tools of the thread dial.
type socketsHook struct {
	ctx      context.Context // ends with the server
	driver   driver.Driver
	bridge   *bridge.Bridge
	wrappers firstWrappers
	log      *slog.Logger
}

func (h *socketsHook) name() string { return "sockets" }

func (h *socketsHook) up(_ context.Context, s *Start) error {
	var err error
	if s.Way != Claimed {
		err = h.openLink(s.Instance)
	}
	if err == nil && s.Way != Pooled {
		err = h.openBridge(s.Instance)
	}
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the sandbox cannot be prepared")
	}
	if s.Way == Cold {
		h.wrappers.write(s)
	}
	return nil
}

func (h *socketsHook) down(_ context.Context, e *end) {
	if err := e.inst.Close(); err != nil {
		logOf(h.log, e.inst).Warn("sockets not closed", "error", err)
	}
}

// openLink makes the instance's folder and the socket that sandboxd dials.
func (h *socketsHook) openLink(inst *instance.Instance) error {
	if err := os.MkdirAll(string(inst.Dir), 0o711); err != nil {
		return err
	}
	for _, dir := range []string{inst.Dir.Sock(), inst.Dir.CodeAPI()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	var err error
	inst.Conn.Link, err = link.Listen(link.ListenOptions{Dir: inst.Dir.Sock(), UID: inst.UID, SecretFile: inst.Dir.SecretFile(), Log: h.log})
	if err != nil {
		return err
	}
	inst.Conn.Client = client.New(inst.Conn.Link, func(ctx context.Context) bool { return h.stillRuns(ctx, inst) })
	return nil
}

// stillRuns reports whether a sandbox that does not answer just now is worth waiting for. An engine that does not tell
// has as much to do as the rest of the machine.
func (h *socketsHook) stillRuns(ctx context.Context, inst *instance.Instance) bool {
	if inst.Ending() != "" || h.ctx.Err() != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	entry, err := h.driver.Inspect(ctx, inst.ID)
	if err != nil {
		return !errors.Is(err, sandbox.NotFound)
	}
	return entry.State == sandbox.Running || entry.State == sandbox.Paused
}

// openBridge makes the socket for tool calls, which knows the thread.
func (h *socketsHook) openBridge(inst *instance.Instance) (err error) {
	inst.Conn.Bridge, err = h.bridge.Serve(inst.Dir.Sock(), inst.UID, inst.Thread)
	return err
}

// sandboxHook has the driver make the sandbox, or makes an existing one the thread's.
type sandboxHook struct {
	driver  driver.Driver
	owners  *ownership.Owners
	folders *workspace.Folders
	copies  *copies.Copies
	volumes *volumes.Volumes
	loads   *load.Watcher
	specs   specs
	runRoot string
	log     *slog.Logger
}

func (h *sandboxHook) name() string { return "sandbox" }

func (h *sandboxHook) up(ctx context.Context, s *Start) (err error) {
	inst := s.Instance
	switch s.Way {
	case Cold:
		if inst.Template.Prepare != nil {
			err = inst.Template.Prepare(ctx)
		}
		if err == nil && inst.FileSync != nil { // they are copied when it is made
			err = s.shown()
		}
		if err == nil {
			err = s.MakeWay(ctx)
		}
		if err == nil {
			err = h.create(ctx, inst)
		}
	case Pooled:
		inst.Pooled.Image, err = ImageNow(ctx, h.driver, inst.Template) // before: a newer one counts as the older
		if err == nil {
			err = h.createOnDisk(ctx, inst, h.specs.ofPooled(inst.Pooled))
		}
	case Claimed:
		err = h.attachClaimed(ctx, inst)
		if err == nil && !s.moved {
			if err = h.fill(ctx, inst); err != nil {
				err = errors.Join(ErrNotFilled, err)
			}
		}
		if err == nil {
			if inst.FileSync != nil {
				inst.FileSync.Opened(true)
			}
			inst.Pooled.Forget()
		}
	case Adopted:
		err = h.attachAdopted(ctx, inst)
	}
	s.made = time.Now()
	return err
}

func (h *sandboxHook) down(ctx context.Context, e *end) {
	if e.leave {
		return
	}
	h.loads.CountLast(ctx, e.inst)
	if e.inst.Owned() == nil || e.held || e.inst.Main != nil { // it has never begun to exist, or nothing else can begin for the thread
		e.failed = h.driver.Remove(ctx, e.inst.ID)
	} else { // no server can adopt it meanwhile
		e.leave, e.failed = h.owners.Remove(ctx, e.inst.Owned(), e.inst.ID, h.driver.Remove)
	}
	if e.failed != nil {
		logOf(h.log, e.inst).Error("sandbox not removed; tried again later", "error", e.failed)
	}
}

// create makes a sandbox for a thread.
func (h *sandboxHook) create(ctx context.Context, inst *instance.Instance) error {
	if !inst.OnVolume() {
		err := h.createOnDisk(ctx, inst, h.specs.ofThread(inst))
		if _, gone := os.Lstat(h.folders.Dir(inst.Thread)); err != nil && errors.Is(gone, fs.ErrNotExist) {
			err = sandbox.Wrap(sandbox.Conflict, err, "the thread was deleted while its sandbox started")
		}
		return err
	}
	return h.volumes.Start(ctx, inst.Thread, func(on *sandbox.Volume, due []string) error {
		spec := h.specs.ofThread(inst)
		spec.Volume = on
		if _, err := h.driver.Create(ctx, spec); err != nil {
			return err
		}
		inst.FileSync.Files.Add(due...)
		inst.FileSync.Opened(!on.Ahead)
		if len(due) > 0 {
			return h.copies.UpToDate(ctx, inst)
		}
		return nil
	})
}

// createOnDisk makes a sandbox that has no volume.
func (h *sandboxHook) createOnDisk(ctx context.Context, inst *instance.Instance, spec sandbox.Spec) error {
	_, err := h.driver.Create(ctx, spec)
	if err == nil && inst.FileSync != nil {
		inst.FileSync.Opened(true)
	}
	return err
}

// attachClaimed makes a sandbox with a disk of its own the thread's: what it writes goes into the thread's folder. A sandbox that
// cannot be reached is given up for another.
func (h *sandboxHook) attachClaimed(ctx context.Context, inst *instance.Instance) error {
	if inst.FileSync == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	err := h.copies.Attach(limited, inst, map[string]string{
		sandbox.LabelTenant: inst.Thread.Tenant, sandbox.LabelUser: inst.Thread.User, sandbox.LabelThread: inst.Thread.ID,
	})
	if err == nil || ctx.Err() != nil {
		return err
	}
	logOf(h.log, inst).Warn("a sandbox of the pool cannot be reached", "error", err)
	return instance.ErrGivenUp
}

// attachAdopted connects this server with a sandbox whose disk is elsewhere. What the server before it changed last may
// not have come there, and what ran last may not have come from there: the next who looks sees to that.
func (h *sandboxHook) attachAdopted(ctx context.Context, inst *instance.Instance) error {
	if inst.FileSync == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, adoptTimeout)
	defer cancel()
	if err := h.copies.Attach(ctx, inst, nil); err != nil {
		return err
	}
	inst.FileSync.Views.Add(sandbox.SkillsDir, sandbox.PluginsDir, sandbox.CodeAPIDir)
	inst.FileSync.Opened(false)
	return nil
}

// fill copies the thread's files into a sandbox of the pool, and notes that they are there. The API changes none of them
// meanwhile.
func (h *sandboxHook) fill(ctx context.Context, inst *instance.Instance) error {
	fs := inst.FileSync
	if err := fs.TakeTurn(ctx); err != nil {
		return err
	}
	defer fs.GiveTurn()
	if err := fs.Remote.Push(ctx, inst.ID, sandbox.UserDataDir); err != nil {
		logOf(h.log, inst).Warn("a sandbox of the pool cannot be given a thread's files", "error", err)
		return err
	}
	if err := noteFilled(h.runRoot, inst); err != nil {
		return err
	}
	// The folder that it waited with says from now on nothing. The next sweep after the sandbox removes a folder that stays.
	if err := h.folders.Drop(inst.Pooled.Files, inst.Pooled.UID); err != nil {
		logOf(h.log, inst).Warn("folder of a pooled sandbox not removed; tried again", "error", err)
	}
	return nil
}

// filledFile says of a sandbox that waited which workspace's files were copied into it, by the workspace's uid. Nothing of it
// is seen inside.
func filledFile(runRoot string, id sandbox.ID) string {
	return filepath.Join(runRoot, string(id), "filled")
}

// noteFilled writes the note in one step.
func noteFilled(runRoot string, inst *instance.Instance) error {
	path := filledFile(runRoot, inst.ID)
	err := os.WriteFile(path+".new", []byte(strconv.Itoa(inst.UID)), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the sandbox cannot be made the thread's")
	}
	return nil
}

// filledWith reads the note; 0: there is none.
func filledWith(runRoot string, id sandbox.ID) int {
	text, err := os.ReadFile(filledFile(runRoot, id))
	if err != nil {
		return 0
	}
	uid, err := strconv.Atoi(string(text))
	if err != nil {
		return 0
	}
	return uid
}

// daemonHook waits until sandboxd answers.
type daemonHook struct {
	contexts Contexts
	copies   *copies.Copies
	log      *slog.Logger
}

func (h *daemonHook) name() string { return "daemon" }

func (h *daemonHook) up(ctx context.Context, s *Start) error {
	switch s.Way {
	case Claimed:
		if err := h.answers(ctx, s.Instance); err != nil {
			return err
		}
		return h.copies.UpToDate(ctx, s.Instance)
	case Adopted:
		return h.takeOver(ctx, s.Instance)
	}
	return s.Instance.Conn.Hello(ctx)
}

// answers makes sure that a sandbox which waited is still there. A missing one is given up for another.
func (h *daemonHook) answers(ctx context.Context, inst *instance.Instance) error {
	limited, cancel := context.WithTimeout(ctx, aliveTimeout)
	defer cancel()
	err := inst.Conn.Hello(limited)
	if err == nil || ctx.Err() != nil {
		return err
	}
	logOf(h.log, inst).Warn("a sandbox of the pool does not answer", "error", err)
	return instance.ErrGivenUp
}

// takeOver ends what a former server left running in an adopted sandbox: no caller waits for it.
func (h *daemonHook) takeOver(ctx context.Context, inst *instance.Instance) error {
	ctx, cancel := context.WithTimeout(ctx, adoptTimeout)
	defer cancel()
	if _, err := inst.Conn.Link.Conn(ctx); err != nil { // a call of its own waits for less
		return fmt.Errorf("it does not dial: %w", err)
	}
	st, err := inst.Conn.Client.Status(ctx)
	if err != nil {
		return fmt.Errorf("it does not answer: %w", err)
	}
	inst.Conn.Learn(st)
	for _, e := range st.GetExecs() {
		if !e.GetRunning() {
			continue
		}
		if err := inst.Conn.Client.Kill(ctx, e.GetExecId()); err != nil {
			return fmt.Errorf("an exec that still runs in it cannot be ended: %w", err)
		}
	}
	h.contexts.Adopt(ctx, inst, st.GetContexts())
	return nil
}
