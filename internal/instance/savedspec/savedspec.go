package savedspec

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Spec is such a file.
type Spec struct {
	Template   string        `json:"template"`
	Hibernated *sandbox.Info `json:"hibernated,omitempty"` // as it was when it was put away; nil: it was not
	// EnvLast: all but the environment comes before it. A file of an earlier version is in another order.
	EnvLast bool              `json:"env_last,omitempty"`
	Env     map[string]string `json:"env,omitempty"`        // without a sealer
	Sealed  []byte            `json:"sealed_env,omitempty"` // the same, encrypted
}

const (
	// maxBytes bounds the file, also that of an earlier version, which let environments be larger.
	maxBytes = 256 << 20
	// maxHead bounds what Head reads.
	maxHead = 16 << 10
	// freeBytes of each file count as nothing: only environments do, and not the smallest.
	freeBytes = 1 << 10
	// countEvery is how often the files of a user are counted: other servers of the data folder write some,
	// too.
	countEvery = 30 * time.Second
	// maxCounts bounds the users whose count is known.
	maxCounts = 10_000
)

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
	// UserBytes bounds the environments that are kept for the threads of one user together; 0: nothing does.
	UserBytes int64
	Log       *slog.Logger
}

// Specs are those of all threads of a data folder.
type Specs struct {
	o Options

	mu     sync.Mutex
	counts map[sandbox.Owner]*count
}

// New returns the specs of a data folder.
func New(o Options) *Specs { return &Specs{o: o, counts: map[sandbox.Owner]*count{}} }

// count is what the files of a user had together when they were counted, with what was admitted since.
type count struct {
	mu    sync.Mutex
	bytes int64
	at    time.Time
}

// counted is what a file of a size counts.
func counted(size int64) int64 { return max(size-freeBytes, 0) }

// Admit refuses an environment for a thread with which those of its user would have too many bytes:
// QuotaExceeded. Of two at once, both count.
func (x *Specs) Admit(t sandbox.Thread, env map[string]string) error {
	if x.o.UserBytes <= 0 || len(env) == 0 {
		return nil
	}
	text, err := json.Marshal(env)
	if err != nil {
		return err
	}
	need := counted(int64(len(text)))
	if x.o.Sealer != nil {
		need = counted(int64(len(text)) * 4 / 3) // it is in base64
	}
	if need == 0 {
		return nil
	}
	c := x.countOf(t.Owner)
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) > countEvery {
		if c.bytes, err = x.countFiles(t.Owner); err != nil {
			return sandbox.Wrap(sandbox.Internal, err, "the environments that are kept cannot be counted")
		}
		c.at = time.Now()
	}
	if info, err := os.Lstat(x.File(t)); err == nil {
		need -= counted(info.Size())
	}
	if need > 0 && c.bytes+need > x.o.UserBytes {
		return sandbox.Errorf(sandbox.QuotaExceeded,
			"env: the environments of the user's sandboxes would have %d bytes together, at most %d: release some sandboxes, or send less",
			c.bytes+need, x.o.UserBytes)
	}
	c.bytes += need
	return nil
}

func (x *Specs) countOf(o sandbox.Owner) *count {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.counts[o]
	if c == nil {
		if len(x.counts) >= maxCounts {
			clear(x.counts)
		}
		c = &count{}
		x.counts[o] = c
	}
	return c
}

func (x *Specs) countFiles(o sandbox.Owner) (sum int64, err error) {
	entries, err := os.ReadDir(filepath.Dir(x.File(sandbox.Thread{Owner: o})))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			sum += counted(info.Size())
		}
	}
	return sum, nil
}

// File is where what is kept of a thread's sandbox lies.
func (x *Specs) File(t sandbox.Thread) string {
	return filepath.Join(x.o.DataDir, "sandboxes", t.Tenant, t.User, t.ID+".json")
}

// Read returns what is kept of a thread's sandbox, nil when nothing is. What cannot be read is as good
// as nothing, and logged.
func (x *Specs) Read(t sandbox.Thread) *Spec {
	saved, err := x.load(t)
	if err == nil {
		err = x.open(t, saved)
	}
	return x.orNone(t, saved, err)
}

// Head is Read without the environment, for callers that do not need it: nothing is decrypted, and of a large
// file little is read.
func (x *Specs) Head(t sandbox.Thread) *Spec {
	saved, err := x.head(t)
	if err == nil && saved == nil {
		saved, err = x.load(t)
	}
	if saved != nil {
		saved.Env, saved.Sealed = nil, nil
	}
	return x.orNone(t, saved, err)
}

func (x *Specs) orNone(t sandbox.Thread, saved *Spec, err error) *Spec {
	if err == nil {
		return saved
	}
	if !errors.Is(err, fs.ErrNotExist) {
		x.o.Log.Error("what is kept of a sandbox cannot be read", "thread", t.String(), "error", err)
	}
	return nil
}

// load reads the whole file. It decrypts nothing.
func (x *Specs) load(t sandbox.Thread) (*Spec, error) {
	info, err := os.Lstat(x.File(t))
	if err != nil {
		return nil, err
	}
	if info.Size() > maxBytes {
		return nil, errors.New("it is too large")
	}
	text, err := os.ReadFile(x.File(t))
	if err != nil {
		return nil, err
	}
	saved := &Spec{}
	return saved, json.Unmarshal(text, saved)
}

// head reads the file as far as the environment; nil: in this file the environment does not come last.
func (x *Specs) head(t sandbox.Thread) (*Spec, error) {
	file, err := os.Open(x.File(t))
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read
	text := make([]byte, maxHead)
	n, err := io.ReadFull(file, text)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	saved, in := &Spec{}, json.NewDecoder(bytes.NewReader(text[:n]))
	if first, err := in.Token(); err != nil || first != json.Delim('{') {
		return nil, nil //nolint:nilnil,nilerr // load says what is wrong
	}
	for !saved.EnvLast && in.More() {
		key, err := in.Token()
		if err == nil {
			switch key {
			case "template":
				err = in.Decode(&saved.Template)
			case "hibernated":
				err = in.Decode(&saved.Hibernated)
			case "env_last":
				err = in.Decode(&saved.EnvLast)
			default:
				return nil, nil //nolint:nilnil // see above
			}
		}
		if err != nil {
			return nil, nil //nolint:nilnil,nilerr // load says what is wrong
		}
	}
	if end, err := in.Token(); !saved.EnvLast && (err != nil || end != json.Delim('}')) {
		return nil, nil //nolint:nilnil,nilerr // load says what is wrong
	}
	return saved, nil
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
	return marshal(saved)
}

func marshal(saved Spec) ([]byte, error) {
	saved.EnvLast = true
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
	saved.Env, saved.Hibernated, saved.EnvLast = nil, nil, false
	return &saved
}

// Restore writes a spec that came with a thread's files, unless there is one. An environment that cannot be decrypted here is
// left out.
func (x *Specs) Restore(ctx context.Context, t sandbox.Thread, spec Spec) error {
	if _, err := os.Lstat(x.File(t)); err == nil {
		return nil
	}
	saved := spec
	if x.open(t, &saved) != nil {
		x.o.Log.Warn("the environment of a sandbox is encrypted for a key that is not there", "thread", t.String())
		spec.Sealed = nil
	} else if err := x.Admit(t, saved.Env); err != nil {
		x.o.Log.Warn("the environment of a sandbox is not kept", "thread", t.String(), "error", err)
		spec.Sealed, spec.Env = nil, nil
	}
	raw, err := marshal(spec)
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
