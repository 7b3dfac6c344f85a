package savedspec

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Spec is such a file.
type Spec struct {
	Template   string            `json:"template"`
	Env        map[string]string `json:"env,omitempty"`        // without a sealer
	Sealed     []byte            `json:"sealed_env,omitempty"` // the same, encrypted
	Hibernated *sandbox.Info     `json:"hibernated,omitempty"` // as it was when it was put away; nil: it was not
}

// maxBytes bounds the file: maxEnv variables of maxArgBytes with room for JSON's escapes.
const maxBytes = 256 << 20

// Sealer encrypts what is kept in files. Only with the same purpose a text is opened again.
type Sealer interface {
	Seal(purpose string, plain []byte) ([]byte, error)
	Open(purpose string, sealed []byte) ([]byte, error)
	// Stale reports whether a text is sealed for an older key than the newest.
	Stale(purpose string, sealed []byte) bool
}

// Options are the parts that Specs work with.
type Options struct {
	DataDir string
	// Sealer encrypts the environments; nil: they are kept as they are.
	Sealer Sealer
	Log    *slog.Logger
}

// Specs are those of all threads of a data folder.
type Specs struct{ o Options }

// New returns the specs of a data folder.
func New(o Options) *Specs { return &Specs{o: o} }

// File is where what is kept of a thread's sandbox lies.
func (x *Specs) File(t sandbox.Thread) string {
	return filepath.Join(x.o.DataDir, "sandboxes", t.Tenant, t.User, t.ID+".json")
}

// Read returns what is kept of a thread's sandbox, nil when nothing is. What cannot be read is as good
// as nothing, and logged.
func (x *Specs) Read(t sandbox.Thread) *Spec {
	info, err := os.Lstat(x.File(t))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var saved Spec
	if err == nil && info.Size() > maxBytes {
		err = errors.New("it is too large")
	}
	if err == nil {
		var text []byte
		if text, err = os.ReadFile(x.File(t)); err == nil {
			err = json.Unmarshal(text, &saved)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = x.open(t, &saved)
	}
	if err != nil {
		x.o.Log.Error("what is kept of a sandbox cannot be read", "thread", t.String(), "error", err)
		return nil
	}
	return &saved
}

// purpose binds a sealed environment to its thread.
func purpose(t sandbox.Thread) string { return "sandbox env " + t.String() }

// open decrypts the environment.
func (x *Specs) open(t sandbox.Thread, saved *Spec) error {
	if saved.Sealed == nil {
		return nil
	}
	if x.o.Sealer == nil {
		return errors.New("its environment is encrypted, and there is no key")
	}
	text, err := x.o.Sealer.Open(purpose(t), saved.Sealed)
	if err != nil {
		return err
	}
	saved.Sealed = nil
	return json.Unmarshal(text, &saved.Env)
}

// encode returns the text of the file, with the environment encrypted.
func (x *Specs) encode(t sandbox.Thread, saved Spec) ([]byte, error) {
	if len(saved.Env) > 0 && x.o.Sealer != nil {
		text, err := json.Marshal(saved.Env)
		if err != nil {
			return nil, err
		}
		if saved.Sealed, err = x.o.Sealer.Seal(purpose(t), text); err != nil {
			return nil, err
		}
		saved.Env = nil
	}
	return json.Marshal(saved)
}

// Write puts the file there in one step, durably.
func (x *Specs) Write(ctx context.Context, t sandbox.Thread, saved Spec) error {
	text, err := x.encode(t, saved)
	if err != nil {
		return err
	}
	path := x.File(t)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return lockedfile.Edit(context.WithoutCancel(ctx), path, maxBytes, func([]byte) ([]byte, error) { return text, nil })
}

// Renew encrypts the environments that are kept as they are, or for a key that is not the newest. An environment that
// cannot be read is left alone, with a line in the log.
func (x *Specs) Renew(ctx context.Context) (changed int, err error) {
	if x.o.Sealer == nil {
		return 0, nil
	}
	root := filepath.Join(x.o.DataDir, "sandboxes")
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
		err = lockedfile.Edit(ctx, path, maxBytes, func(text []byte) ([]byte, error) {
			var saved Spec
			if json.Unmarshal(text, &saved) != nil || len(saved.Env) == 0 && (saved.Sealed == nil || !x.o.Sealer.Stale(purpose(t), saved.Sealed)) {
				return nil, nil
			}
			if err := x.open(t, &saved); err != nil {
				x.o.Log.Warn("the environment of a sandbox is encrypted for a key that is not there", "thread", t.String(), "error", err)
				return nil, nil
			}
			out, err := x.encode(t, saved)
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

// Forget takes the file away. A missing one is no error.
func (x *Specs) Forget(t sandbox.Thread) error {
	if err := os.Remove(x.File(t)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return sandbox.Wrap(sandbox.Internal, err, "what is kept of the sandbox cannot be deleted")
	}
	return nil
}

// Plain returns what may leave this server of a thread's spec: no environment that is not encrypted, and not that the
// sandbox was put away. nil: nothing is kept, or it cannot be read.
func (x *Specs) Plain(t sandbox.Thread) *Spec {
	_, text, err := lockedfile.Read(x.File(t), maxBytes)
	var saved Spec
	if err != nil || len(text) == 0 || json.Unmarshal(text, &saved) != nil {
		return nil
	}
	saved.Env, saved.Hibernated = nil, nil
	return &saved
}

// Restore writes a spec that came with a thread's files, unless there is one. An environment that cannot be decrypted here is
// left out.
func (x *Specs) Restore(ctx context.Context, t sandbox.Thread, spec Spec) error {
	if _, err := os.Lstat(x.File(t)); err == nil {
		return nil
	}
	if saved := spec; x.open(t, &saved) != nil {
		x.o.Log.Warn("the environment of a sandbox is encrypted for a key that is not there", "thread", t.String())
		spec.Sealed = nil
	}
	raw, err := json.Marshal(spec)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(x.File(t)), 0o700)
	}
	if err == nil {
		err = lockedfile.Edit(ctx, x.File(t), maxBytes, func([]byte) ([]byte, error) { return raw, nil })
	}
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "what is kept of the sandbox cannot be written")
	}
	return nil
}
