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

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// What a thread's sandbox was asked to be outlives it, and the server, in a file beside the workspaces: the
// next call brings back a sandbox of the same template with the same environment, after a hibernation as
// after a crash. The environment may hold secrets, so it is encrypted, the file is root's alone, and no part of a thread's view.

// kept is such a file.
type kept struct {
	Template   string            `json:"template"`
	Env        map[string]string `json:"env,omitempty"`        // without a sealer
	Sealed     []byte            `json:"sealed_env,omitempty"` // the same, encrypted
	Hibernated *sandbox.Info     `json:"hibernated,omitempty"` // as it was when it was put away; nil: it was not
}

// maxKept bounds the file: maxEnv variables of maxArgBytes with room for JSON's escapes.
const maxKept = 256 << 20

func (r *Orchestrator) keptFile(t sandbox.Thread) string {
	return filepath.Join(r.o.DataDir, "sandboxes", t.Tenant, t.User, t.ID+".json")
}

// readKept gives what is kept of a thread's sandbox, nil when nothing is. What cannot be read is as good
// as nothing, and logged.
func (r *Orchestrator) readKept(t sandbox.Thread) *kept {
	info, err := os.Lstat(r.keptFile(t))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var k kept
	if err == nil && info.Size() > maxKept {
		err = errors.New("it is too large")
	}
	if err == nil {
		var text []byte
		if text, err = os.ReadFile(r.keptFile(t)); err == nil {
			err = json.Unmarshal(text, &k)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = r.unseal(t, &k)
	}
	if err != nil {
		r.o.Log.Error("what is kept of a sandbox cannot be read", "thread", t.String(), "error", err)
		return nil
	}
	return &k
}

// keptPurpose binds a sealed environment to its thread.
func keptPurpose(t sandbox.Thread) string { return "sandbox env " + t.String() }

// unseal decrypts the environment.
func (r *Orchestrator) unseal(t sandbox.Thread, k *kept) error {
	if k.Sealed == nil {
		return nil
	}
	if r.o.Sealer == nil {
		return errors.New("its environment is encrypted, and there is no key")
	}
	text, err := r.o.Sealer.Open(keptPurpose(t), k.Sealed)
	if err != nil {
		return err
	}
	k.Sealed = nil
	return json.Unmarshal(text, &k.Env)
}

// encode gives the text of the file, with the environment encrypted.
func (r *Orchestrator) encode(t sandbox.Thread, k kept) ([]byte, error) {
	if len(k.Env) > 0 && r.o.Sealer != nil {
		text, err := json.Marshal(k.Env)
		if err != nil {
			return nil, err
		}
		if k.Sealed, err = r.o.Sealer.Seal(keptPurpose(t), text); err != nil {
			return nil, err
		}
		k.Env = nil
	}
	return json.Marshal(k)
}

// writeKept puts the file there in one step, durably.
func (r *Orchestrator) writeKept(t sandbox.Thread, k kept) error {
	text, err := r.encode(t, k)
	if err != nil {
		return err
	}
	path := r.keptFile(t)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return lockedfile.Edit(context.WithoutCancel(r.ctx), path, maxKept, func([]byte) ([]byte, error) { return text, nil })
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
		err = lockedfile.Edit(ctx, path, maxKept, func(text []byte) ([]byte, error) {
			var k kept
			if json.Unmarshal(text, &k) != nil || len(k.Env) == 0 && (k.Sealed == nil || !r.o.Sealer.Stale(keptPurpose(t), k.Sealed)) {
				return nil, nil
			}
			if err := r.unseal(t, &k); err != nil {
				r.o.Log.Warn("the environment of a sandbox is encrypted for a key that is not there", "thread", t.String(), "error", err)
				return nil, nil
			}
			out, err := r.encode(t, k)
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

// forgetKept takes the file away. One that is not there is no error.
func (r *Orchestrator) forgetKept(t sandbox.Thread) error {
	if err := os.Remove(r.keptFile(t)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return sandbox.Wrap(sandbox.Internal, err, "what is kept of the sandbox cannot be deleted")
	}
	return nil
}

// order is what a new box is to be.
type order struct {
	template Template
	env      map[string]string
	cold     bool // none of the pool
}

// order says what the thread's next box is: of the template that is named, else what the one before was,
// else of the default template.
func (r *Orchestrator) order(t sandbox.Thread, named string) order {
	var k *kept
	if b := r.find(t); b != nil {
		b.mu.Lock()
		if !b.released {
			k = &kept{Template: b.template.Name, Env: b.env}
		}
		b.mu.Unlock()
	} else {
		k = r.readKept(t)
	}
	if k != nil && (named == "" || named == k.Template) {
		if tmpl, ok := r.o.Templates[k.Template]; ok {
			return order{template: tmpl, env: k.Env}
		}
		r.o.Log.Warn("the template of a thread's sandbox is gone; it gets the default one", "thread", t.String(), "template", k.Template)
	}
	if named == "" {
		named = r.o.Default
	}
	return order{template: r.o.Templates[named]}
}

// saveOrder keeps what a box that runs is. The default without an environment needs no file.
func (r *Orchestrator) saveOrder(b *box) {
	b.keeping.Lock()
	defer b.keeping.Unlock()
	b.mu.Lock()
	now, ended := kept{Template: b.template.Name, Env: b.env}, b.ending != ""
	b.mu.Unlock()
	if ended || !b.isReady() { // whoever ended it has written what is to be kept
		return
	}
	had := r.readKept(b.thread)
	plain := now.Template == r.o.Default && len(now.Env) == 0
	var err error
	switch {
	case plain && had != nil:
		err = r.forgetKept(b.thread)
	case !plain && (had == nil || had.Hibernated != nil || had.Template != now.Template || !maps.Equal(had.Env, now.Env)):
		err = r.writeKept(b.thread, now)
	}
	if err != nil {
		r.o.Log.Error("what the sandbox is cannot be kept: after a restart it is another", "thread", b.thread.String(), "error", err)
	}
}

// saveHibernated keeps a box that is being put away, and gives it as it is shown from now on.
func (r *Orchestrator) saveHibernated(b *box) (sandbox.Info, error) {
	b.keeping.Lock()
	defer b.keeping.Unlock()
	b.mu.Lock()
	info := b.info
	k := kept{Template: b.template.Name, Env: b.env, Hibernated: &info}
	b.mu.Unlock()
	info.State = sandbox.Hibernated
	return info, r.writeKept(b.thread, k)
}
