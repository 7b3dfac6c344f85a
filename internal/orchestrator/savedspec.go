package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// What a thread's sandbox was asked to be outlives it, and the server, in a file beside the workspaces: the
// next call brings back a sandbox of the same template with the same environment, after a hibernation as
// after a crash. The environment may hold secrets, so it is encrypted, the file is root's alone, and no part of a thread's view.

// savedSpec is such a file.
type savedSpec struct {
	Template   string            `json:"template"`
	Env        map[string]string `json:"env,omitempty"`        // without a sealer
	Sealed     []byte            `json:"sealed_env,omitempty"` // the same, encrypted
	Hibernated *sandbox.Info     `json:"hibernated,omitempty"` // as it was when it was put away; nil: it was not
}

// maxKept bounds the file: maxEnv variables of maxArgBytes with room for JSON's escapes.
const maxSavedSpec = 256 << 20

func (r *Orchestrator) savedSpecFile(t sandbox.Thread) string {
	return filepath.Join(r.o.DataDir, "sandboxes", t.Tenant, t.User, t.ID+".json")
}

// readSavedSpec returns what is kept of a thread's sandbox, nil when nothing is. What cannot be read is as good
// as nothing, and logged.
func (r *Orchestrator) readSavedSpec(t sandbox.Thread) *savedSpec {
	info, err := os.Lstat(r.savedSpecFile(t))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var saved savedSpec
	if err == nil && info.Size() > maxSavedSpec {
		err = errors.New("it is too large")
	}
	if err == nil {
		var text []byte
		if text, err = os.ReadFile(r.savedSpecFile(t)); err == nil {
			err = json.Unmarshal(text, &saved)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = r.unseal(t, &saved)
	}
	if err != nil {
		r.o.Log.Error("what is kept of a sandbox cannot be read", "thread", t.String(), "error", err)
		return nil
	}
	return &saved
}

// savedSpecPurpose binds a sealed environment to its thread.
func savedSpecPurpose(t sandbox.Thread) string { return "sandbox env " + t.String() }

// unseal decrypts the environment.
func (r *Orchestrator) unseal(t sandbox.Thread, saved *savedSpec) error {
	if saved.Sealed == nil {
		return nil
	}
	if r.o.Sealer == nil {
		return errors.New("its environment is encrypted, and there is no key")
	}
	text, err := r.o.Sealer.Open(savedSpecPurpose(t), saved.Sealed)
	if err != nil {
		return err
	}
	saved.Sealed = nil
	return json.Unmarshal(text, &saved.Env)
}

// encode returns the text of the file, with the environment encrypted.
func (r *Orchestrator) encode(t sandbox.Thread, saved savedSpec) ([]byte, error) {
	if len(saved.Env) > 0 && r.o.Sealer != nil {
		text, err := json.Marshal(saved.Env)
		if err != nil {
			return nil, err
		}
		if saved.Sealed, err = r.o.Sealer.Seal(savedSpecPurpose(t), text); err != nil {
			return nil, err
		}
		saved.Env = nil
	}
	return json.Marshal(saved)
}

// writeSavedSpec puts the file there in one step, durably.
func (r *Orchestrator) writeSavedSpec(t sandbox.Thread, saved savedSpec) error {
	text, err := r.encode(t, saved)
	if err != nil {
		return err
	}
	path := r.savedSpecFile(t)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return lockedfile.Edit(context.WithoutCancel(r.ctx), path, maxSavedSpec, func([]byte) ([]byte, error) { return text, nil })
}

// RenewKept encrypts the environments that are kept as they are, or for a key that is not the newest. One that
// cannot be read is left alone, with a line in the log.
func (r *Orchestrator) RenewKept(ctx context.Context) (changed int, err error) {
	if r.o.Sealer == nil {
		return 0, nil
	}
	root := filepath.Join(r.o.DataDir, "sandboxes")
	files, err := filepath.Glob(filepath.Join(root, "*", "*", "*.json"))
	if err != nil {
		return 0, err
	}
	for _, path := range files {
		rel, err := filepath.Rel(root, strings.TrimSuffix(path, ".json"))
		parts := strings.Split(rel, string(filepath.Separator))
		if err != nil || len(parts) != 3 {
			continue
		}
		t := sandbox.Thread{Owner: sandbox.Owner{Tenant: parts[0], User: parts[1]}, ID: parts[2]}
		err = lockedfile.Edit(ctx, path, maxSavedSpec, func(text []byte) ([]byte, error) {
			var saved savedSpec
			if json.Unmarshal(text, &saved) != nil || len(saved.Env) == 0 && (saved.Sealed == nil || !r.o.Sealer.Stale(savedSpecPurpose(t), saved.Sealed)) {
				return nil, nil
			}
			if err := r.unseal(t, &saved); err != nil {
				r.o.Log.Warn("the environment of a sandbox is encrypted for a key that is not there", "thread", t.String(), "error", err)
				return nil, nil
			}
			out, err := r.encode(t, saved)
			if err == nil {
				changed++
			}
			return out, err
		})
		if err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// forgetSavedSpec takes the file away. A missing one is no error.
func (r *Orchestrator) forgetSavedSpec(t sandbox.Thread) error {
	if err := os.Remove(r.savedSpecFile(t)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return sandbox.Wrap(sandbox.Internal, err, "what is kept of the sandbox cannot be deleted")
	}
	return nil
}

// order is what a new instance is to be.
type order struct {
	template instance.Template
	env      map[string]string
	cold     bool // none of the pool
}

// order says what the thread's next instance is: of the template that is named, else what the one before was,
// else of the default template.
func (r *Orchestrator) order(t sandbox.Thread, named string) order {
	var saved *savedSpec
	if inst := r.find(t); inst != nil {
		if env, _, kept := inst.SavedState(); kept {
			saved = &savedSpec{Template: inst.Template.Name, Env: env}
		}
	} else {
		saved = r.readSavedSpec(t)
	}
	if saved != nil && (named == "" || named == saved.Template) {
		if tmpl, ok := r.o.Templates[saved.Template]; ok {
			return order{template: tmpl, env: saved.Env}
		}
		r.o.Log.Warn("the template of a thread's sandbox is gone; it gets the default one", "thread", t.String(), "template", saved.Template)
	}
	if named == "" {
		named = r.o.Default
	}
	return order{template: r.o.Templates[named]}
}

// saveOrder keeps what an instance that runs is. The default without an environment needs no file.
func (r *Orchestrator) saveOrder(inst *instance.Instance) {
	inst.SpecMu.Lock()
	defer inst.SpecMu.Unlock()
	now := savedSpec{Template: inst.Template.Name, Env: inst.Environment()}
	if inst.Ending() != "" || !inst.IsReady() { // its end wrote what is to be kept
		return
	}
	had := r.readSavedSpec(inst.Thread)
	plain := now.Template == r.o.Default && len(now.Env) == 0
	var err error
	switch {
	case plain && had != nil:
		err = r.forgetSavedSpec(inst.Thread)
	case !plain && (had == nil || had.Hibernated != nil || had.Template != now.Template || !maps.Equal(had.Env, now.Env)):
		err = r.writeSavedSpec(inst.Thread, now)
	}
	if err != nil {
		r.o.Log.Error("what the sandbox is cannot be kept: after a restart it is another", "thread", inst.Thread.String(), "error", err)
	}
}

// saveHibernated keeps an instance that is being put away, and returns it as it is shown from now on.
func (r *Orchestrator) saveHibernated(inst *instance.Instance) (sandbox.Info, error) {
	inst.SpecMu.Lock()
	defer inst.SpecMu.Unlock()
	env, info, _ := inst.SavedState()
	saved := savedSpec{Template: inst.Template.Name, Env: env, Hibernated: &info}
	info.State = sandbox.Hibernated
	return info, r.writeSavedSpec(inst.Thread, saved)
}
