package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/config/extensions"
	"github.com/skerry-sandbox/skerry/internal/driver/memory"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/lifecycle"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	skill "github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// withScripts makes the templates data and office, and the skills sums and letters, whose scripts run in them.
func withScripts(t *testing.T) func(*Options) {
	t.Helper()
	return func(o *Options) {
		o.Templates = maps.Clone(o.Templates)
		var sources []skill.Source
		for name, template := range map[string]string{"sums": "data", "letters": "office"} {
			tmpl := o.Templates["base"]
			tmpl.Name = template
			o.Templates[template] = tmpl
			dir := t.TempDir()
			for file, text := range map[string]string{"SKILL.md": skillText(name), "run.py": "print(1)\n"} {
				if err := errors.Join(os.MkdirAll(filepath.Join(dir, name), 0o755), os.WriteFile(filepath.Join(dir, name, file), []byte(text), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			sources = append(sources, skill.Source{Dir: dir, Defaults: &sandbox.ScriptDefaults{Template: template}})
		}
		switches, ok := o.Switches.(*extensions.Files)
		if !ok {
			t.Fatalf("switches: %T", o.Switches)
		}
		lib, err := skill.Open(skill.Options{
			Dir: filepath.Join(o.Storage.DataDir, "templated"), Users: filepath.Join(o.Storage.DataDir, "tenants"), Public: sources, Log: o.Log,
			State: func(owner sandbox.Owner) (skill.State, error) { return switches.State(owner) },
		})
		if err != nil {
			t.Fatal(err)
		}
		o.Skills = lib
	}
}

// script starts a script of a skill.
func (r *Orchestrator) script(ctx context.Context, thread, name string) (string, error) {
	return r.Runs.RunScript(ctx, caller, thread, sandbox.Script{Skill: name, Path: "run.py", Timeout: time.Minute})
}

// begun starts a script in a second sandbox, and returns it with that sandbox.
func begun(t *testing.T, r *Orchestrator, thread, name string) (exec string, second *instance.Instance) {
	t.Helper()
	exec, err := r.script(t.Context(), thread, name)
	if err != nil {
		t.Fatal(err)
	}
	e, err := r.execs.Get(sandbox.Thread{Owner: caller.Owner, ID: thread}, exec)
	if err != nil {
		t.Fatal(err)
	}
	if second = e.Instance(r.live); second == nil || second.Main == nil || second.Main != r.live.Find(second.Thread) {
		t.Fatalf("it runs in %+v", second)
	}
	if err := e.WaitBegun(t.Context()); err != nil {
		t.Fatal(err)
	}
	return exec, second
}

// inSandbox is where a path of one sandbox of a thread is on this machine.
func inSandbox(r *Orchestrator, host *memory.Host, inst *instance.Instance, path string) string {
	if inst.FileSync != nil {
		return host.Inside(inst.ID, path)
	}
	return strings.Replace(path, sandbox.UserDataDir, r.folders.Dir(inst.Thread), 1)
}

func writeAs(t *testing.T, uid int, path, text string) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, []byte(text), 0o644), os.Chown(path, uid, uid)); err != nil {
		t.Fatal(err)
	}
}

func wantFile(t *testing.T, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s has %q, %v; want %q", path, got, err, want)
	}
}

// throughAPI changes a file of the thread as a caller of the API does.
func (h *house) throughAPI(t *testing.T, thread, path, text string) {
	t.Helper()
	err := h.Files.ChangeFiles(t.Context(), caller, thread, audit.ActionFileWrite, path, func(fs *paths.FS) (int64, error) {
		_, err := fs.Write(t.Context(), path, strings.NewReader(text), false)
		return int64(len(text)), err
	})
	if err != nil {
		t.Fatal(err)
	}
}

const before, during, written = sandbox.WorkspaceDir + "/before", sandbox.WorkspaceDir + "/during", sandbox.WorkspaceDir + "/written"

// TestSecondSandbox: a script of a skill with another template runs in a second sandbox of its thread, with the same files
// both ways. It is an exec of the thread, and its record names the template. The next script runs in the same sandbox, which
// ends when it is idle for a while.
func TestSecondSandbox(t *testing.T) {
	t.Parallel()
	g := newGate()
	h := newHouseOf(t, g, withScripts(t))
	ctx := t.Context()
	h.throughAPI(t, "x", before, "1")
	exec, second := begun(t, h.Orchestrator, "x", "sums")
	main := second.Main
	if second.Template.Name != "data" || main.Template.Name != "base" || second.UID != main.UID {
		t.Errorf("second %s of uid %d beside %s of %d", second.Template.Name, second.UID, main.Template.Name, main.UID)
	}
	wantFile(t, inSandbox(h.Orchestrator, h.driver.Host(), second, before), "1")
	h.throughAPI(t, "x", during, "2")
	wantFile(t, inSandbox(h.Orchestrator, h.driver.Host(), second, during), "2")
	wantFile(t, inSandbox(h.Orchestrator, h.driver.Host(), main, during), "2")
	writeAs(t, second.UID, inSandbox(h.Orchestrator, h.driver.Host(), second, written), "3")
	if err := os.Remove(inSandbox(h.Orchestrator, h.driver.Host(), second, before)); err != nil {
		t.Fatal(err)
	}
	if list, err := h.Execs.Execs(ctx, caller, "x"); err != nil || len(list) != 1 || list[0].ExecID != exec {
		t.Errorf("the thread's execs: %+v, %v", list, err)
	}
	if h.Lifecycle.Look(time.Now().Add(time.Hour)); second.Ending() != "" || main.Ending() != "" {
		t.Errorf("ended while a script runs: %q, %q", second.Ending(), main.Ending())
	}
	if err := h.Execs.Kill(ctx, caller, "x", exec); err != nil {
		t.Fatal(err)
	}
	wantFile(t, inSandbox(h.Orchestrator, h.driver.Host(), main, written), "3")
	if _, err := os.Stat(inSandbox(h.Orchestrator, h.driver.Host(), main, before)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what the script deleted is there: %v", err)
	}
	records, _, err := h.audit.List(ctx, audit.Filter{Tenant: "t", Exec: exec})
	ends := 0
	for _, r := range records {
		if r.Sandbox != string(second.ID) {
			t.Errorf("of another sandbox: %+v", r)
		}
		if r.Action == audit.ActionSkillRun && r.Phase == audit.PhaseResult {
			ends++
		} else if r.Action == audit.ActionSkillRun && r.Detail != "in a second sandbox of the template data" {
			t.Errorf("the attempt's detail is %q", r.Detail)
		}
	}
	if err != nil || ends != 1 {
		t.Errorf("%d ends of the script, %v", ends, err)
	}

	writeAs(t, main.UID, inSandbox(h.Orchestrator, h.driver.Host(), main, before), "4")
	main.FileSync.Begin() // as an exec does
	main.FileSync.End()
	again, same := begun(t, h.Orchestrator, "x", "sums")
	if same != second {
		t.Errorf("the second script runs in %s, the first did in %s", same.ID, second.ID)
	}
	wantFile(t, inSandbox(h.Orchestrator, h.driver.Host(), second, before), "4")
	if err := h.Execs.Kill(ctx, caller, "x", again); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the script has left", func() bool { return !second.Busy() })
	second.Backdate(time.Minute)
	h.Lifecycle.Look(time.Now())
	<-second.Gone
	if left, err := h.driver.List(ctx, nil); err != nil || len(left) != 1 || left[0].ID != main.ID {
		t.Errorf("left: %+v, %v", left, err)
	}
	if got := h.records(t, audit.ActionSandboxRemove); got["ok: idle"] != 1 {
		t.Errorf("records: %v", got)
	}
}

// TestScriptInOwnTemplate: a thread whose own sandbox is of the skill's template gets no second one.
func TestScriptInOwnTemplate(t *testing.T) {
	t.Parallel()
	h := newHouseWith(t, daemon{run: exits}, noTools{}, withScripts(t))
	if _, err := h.Starts.Acquire(t.Context(), caller, "x", sandbox.AcquireOptions{Template: "data"}); err != nil {
		t.Fatal(err)
	}
	exec, err := h.script(t.Context(), "x", "sums")
	if err == nil {
		_, err = h.Execs.Wait(t.Context(), caller, "x", exec)
	}
	if n := h.boxes.Load(); err != nil || n != 1 {
		t.Errorf("%d sandboxes, %v", n, err)
	}
}

// TestSecondSandboxTakesAPlace: it counts against the limits, and a script that finds no place leaves nothing counted.
func TestSecondSandboxTakesAPlace(t *testing.T) {
	t.Parallel()
	h := newHouseOf(t, newGate(), places(1, lifecycle.Bounds{}), withScripts(t))
	if _, err := h.script(t.Context(), "x", "sums"); !errors.Is(err, sandbox.CapacityExceeded) {
		t.Fatalf("beside the only one: %v", err)
	}
	if n := h.execs.Running(); n != 0 || h.live.Find(sandbox.Thread{Owner: caller.Owner, ID: "x"}).Busy() {
		t.Errorf("%d execs are counted", n)
	}
	if err := h.Execs.Kill(t.Context(), caller, "x", h.background(t, "x")); err != nil {
		t.Errorf("the thread's own: %v", err)
	}
}

// TestSecondSandboxEndsWithItsThread: what ends the thread's own sandbox ends the second one first. The script has one end.
func TestSecondSandboxEndsWithItsThread(t *testing.T) {
	t.Parallel()
	ways := map[string]func(h *house, main *instance.Instance) error{
		"delete": func(h *house, _ *instance.Instance) error {
			return h.Threads.DeleteThread(context.Background(), caller, "x")
		},
		"release": func(h *house, _ *instance.Instance) error {
			return h.Threads.ReleaseSandbox(context.Background(), caller, "x")
		},
		"hibernate": func(h *house, _ *instance.Instance) error {
			_, err := h.Lifecycle.Hibernate(context.Background(), caller, "x", true)
			return err
		},
		"death": func(h *house, main *instance.Instance) error {
			h.driver.Kill(main.ID)
			<-main.Gone
			return nil
		},
	}
	for way, end := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			h := newHouseOf(t, newGate(), withScripts(t))
			exec, second := begun(t, h.Orchestrator, "x", "sums")
			if err := end(h, second.Main); err != nil {
				t.Fatal(err)
			}
			select {
			case <-second.Gone:
			default:
				t.Fatal("the second sandbox is there")
			}
			if left, err := h.driver.List(t.Context(), nil); err != nil || len(left) != 0 {
				t.Errorf("left: %+v, %v", left, err)
			}
			if _, err := os.Stat(string(second.Dir)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("its folder: %v", err)
			}
			ends := 0
			eventually(t, "the script has its end", func() bool {
				records, _, err := h.audit.List(t.Context(), audit.Filter{Tenant: "t", Exec: exec})
				ends = 0
				for _, r := range records {
					if r.Action == audit.ActionSkillRun && r.Phase == audit.PhaseResult {
						ends++
					}
				}
				return err == nil && ends > 0 && h.execs.Running() == 0
			})
			if ends != 1 {
				t.Errorf("it has %d ends", ends)
			}
		})
	}
}

// TestTwoFarSandboxes: where sandboxes have disks of their own, the thread's files are in one of them at a time. Nothing is
// undone: what would run in the thread's own meanwhile is refused, and says why.
func TestTwoFarSandboxes(t *testing.T) {
	t.Parallel()
	if !remoteSandbox {
		t.Skip("the sandboxes of these tests see the disk of the server")
	}
	g := newGate()
	h := newHouseOf(t, g, withScripts(t), places(5, lifecycle.Bounds{}))
	ctx := t.Context()
	busy := h.background(t, "x")
	if _, err := h.script(ctx, "x", "sums"); !errors.Is(err, sandbox.Conflict) || !strings.Contains(err.Error(), "1 execs run") {
		t.Errorf("beside an exec: %v", err)
	}
	if err := h.Execs.Kill(ctx, caller, "x", busy); err != nil {
		t.Fatal(err)
	}
	exec, second := begun(t, h.Orchestrator, "x", "sums")
	if _, err := h.exec(t, "x", time.Minute); !errors.Is(err, sandbox.Conflict) || !strings.Contains(err.Error(), `"data"`) {
		t.Errorf("an exec beside the script: %v", err)
	}
	if _, err := h.script(ctx, "x", "letters"); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("a script of a third template: %v", err)
	}
	twin, same := begun(t, h.Orchestrator, "x", "sums")
	if same != second {
		t.Error("a script of the same template runs elsewhere")
	}
	writeAs(t, second.UID, inSandbox(h.Orchestrator, h.driver.Host(), second, written), "1")
	for _, id := range []string{exec, twin} {
		if err := h.Execs.Kill(ctx, caller, "x", id); err != nil {
			t.Fatal(err)
		}
		wantFile(t, inSandbox(h.Orchestrator, h.driver.Host(), second.Main, written), "1")
	}
	close(g.open)
	if _, err := h.exec(t, "x", time.Minute); err != nil {
		t.Errorf("after the scripts: %v", err)
	}
	wantFile(t, filepath.Join(h.folders.Dir(second.Thread), "workspace", "written"), "1")
}

// TestSecondSandboxOfKilledServer: no server adopts a second sandbox. One that is left is removed before its thread goes on,
// and at the start of the next server, and the script that ran there has ended.
func TestSecondSandboxOfKilledServer(t *testing.T) {
	t.Parallel()
	for _, far := range []bool{false, true} {
		for _, other := range []bool{false, true} { // a server that was there takes the thread, or the next one starts
			t.Run(fmt.Sprintf("far %v, other %v", far, other), func(t *testing.T) {
				t.Parallel()
				w := newTownOf(t, newGate())
				w.far = far
				a := w.settle("a", withScripts(t))
				if other {
					w.settle("b")
				}
				_, second := begun(t, a, "main", "sums")
				main := second.Main
				if other {
					w.die(a)
				} else {
					w.kill(a, nil)
					w.settle("b")
				}
				b := w.orchs["b"]
				replica, done, err := b.Placement.Hold(t.Context(), caller, "main") // as each request does
				if err != nil || replica != "" {
					t.Fatalf("held by %q, %v", replica, err)
				}
				defer done()
				info, err := b.Starts.Acquire(t.Context(), caller, "main", sandbox.AcquireOptions{})
				if err != nil || info.ID != main.ID {
					t.Errorf("the thread has %+v, %v; want %s", info, err, main.ID)
				}
				if left, err := w.engine(t, b).List(t.Context(), nil); err != nil || len(left) != 1 || left[0].ID != main.ID {
					t.Errorf("left: %+v, %v", left, err)
				}
				w.eventually("its folder is gone", func() bool { // a server that goes on may write there meanwhile, and ends it, too
					_, err := os.Stat(string(second.Dir))
					return errors.Is(err, os.ErrNotExist)
				})
			})
		}
	}
}

// TestSecondSandboxIsNotHandedOver: a server that stops ends its second sandboxes, and hands the thread over with its own.
func TestSecondSandboxIsNotHandedOver(t *testing.T) {
	t.Parallel()
	for _, other := range []bool{false, true} {
		t.Run(fmt.Sprint(other), func(t *testing.T) {
			t.Parallel()
			w := newTownOf(t, daemon{run: exits})
			a := w.settle("a", withScripts(t))
			if other {
				w.settle("b")
			}
			exec, err := a.script(t.Context(), "main", "sums")
			if err == nil {
				_, err = a.Execs.Wait(t.Context(), caller, "main", exec)
			}
			if err != nil {
				t.Fatal(err)
			}
			main := a.live.Find(mainThread)
			if len(a.live.Seconds(mainThread)) != 1 {
				t.Fatal("there is no second sandbox")
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := a.Close(ctx); err != nil {
				t.Error(err)
			}
			if left, err := w.engine(t, a).List(t.Context(), nil); err != nil || len(left) != 1 || left[0].ID != main.ID {
				t.Errorf("left: %+v, %v", left, err)
			}
		})
	}
}

// TestHandOverWaitsForTheOwn: an idle second sandbox hands no thread over while something runs in the thread's own.
func TestHandOverWaitsForTheOwn(t *testing.T) {
	t.Parallel()
	w := newTownOf(t, newGate())
	a, b := w.settle("a", withScripts(t)), w.settle("b")
	script, second := begun(t, a, "main", "sums")
	if err := a.Execs.Kill(t.Context(), caller, "main", script); err != nil {
		t.Fatal(err)
	}
	w.eventually("the second sandbox is idle", func() bool { return !second.Main.Busy() })
	exec, err := a.Runs.RunCommand(t.Context(), caller, "main", sandbox.Command{Shell: "serve", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	done := w.drainOf(a, time.Minute)
	w.eventually("it drains", a.Shutdown.Draining)
	if err := a.Execs.Kill(t.Context(), caller, "main", exec); err != nil {
		t.Fatal(err)
	}
	<-done
	replica, release, err := b.Placement.Hold(t.Context(), caller, "main")
	if err != nil || replica != "" {
		t.Fatalf("held by %q, %v", replica, err)
	}
	defer release()
	info, err := b.Starts.Acquire(t.Context(), caller, "main", sandbox.AcquireOptions{})
	if err != nil || info.ID != second.Main.ID {
		t.Errorf("the other server has %+v, %v; want %s", info, err, second.Main.ID)
	}
}

// TestSecondKilledBetweenHooks: a server that dies between two hooks of a second sandbox, up or down, leaves nothing of it
// over. The next server goes on with the thread's own.
func TestSecondKilledBetweenHooks(t *testing.T) {
	t.Parallel()
	for _, far := range []bool{false, true} {
		for _, up := range []bool{true, false} {
			for _, hook := range []string{"ownership", "workspace", "folder", "sockets", "sandbox", "skills", "daemon", "running"} {
				t.Run(fmt.Sprintf("%s_up_%v_far_%v", hook, up, far), func(t *testing.T) {
					t.Parallel()
					killSecond(t, &mortal{hook: hook, up: up, dead: make(chan struct{})}, far)
				})
			}
		}
	}
}

func killSecond(t *testing.T, m *mortal, far bool) {
	w := newTownOf(t, daemon{run: exits})
	w.far = far
	a := w.settle("a", withScripts(t), func(o *Options) {
		o.Lifecycle.PassedHook = func(inst *instance.Instance, hook string, up bool) {
			if inst.Main != nil {
				m.passed(inst, hook, up)
			}
		}
	})
	w.write(a, "kept")
	w.acquire(a)
	main := a.live.Find(mainThread)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m.armed.Store(m.up)
	if m.up {
		go a.script(ctx, "main", "sums") //nolint:errcheck // it does not come back
	} else {
		exec, err := a.script(ctx, "main", "sums")
		if err == nil {
			_, err = a.Execs.Wait(ctx, caller, "main", exec)
		}
		if err != nil {
			t.Fatal(err)
		}
		m.armed.Store(true)
		a.Lifecycle.Look(time.Now().Add(time.Minute))
	}
	select {
	case <-m.dead:
	case <-t.Context().Done():
		t.Fatal("it does not come to the hook")
	}
	cancel()
	w.kill(a, m.inst)
	b := w.settle("b", func(o *Options) { o.StartTime = time.Second }) // it starts none: a folder of that age is looked at
	w.acquire(b)
	if now := b.live.Find(mainThread); now.ID != main.ID {
		t.Errorf("the thread has %s, it had %s", now.ID, main.ID)
	}
	if got := w.read(b); got != "kept" {
		t.Errorf("the file has %q", got)
	}
	if left, err := w.engine(t, b).List(t.Context(), nil); err != nil || len(left) != 1 {
		t.Errorf("left: %+v, %v", left, err)
	}
	w.eventually("its folder is gone", func() bool {
		b.reaper.ReapFolders(nil)
		_, err := os.Stat(string(m.inst.Dir))
		return errors.Is(err, os.ErrNotExist)
	})
}
