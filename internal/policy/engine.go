package policy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/every"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// lookEvery is how often the files are looked at: a stat for each.
const lookEvery = 500 * time.Millisecond

// maxTenants bounds the tenants with rules of their own.
const maxTenants = 10_000

const (
	rulesSuffix = ".yaml"
	otherSuffix = ".yml" // of a file that is not read
	// maxToldTenants bounds the names in one line of the log.
	maxToldTenants = 20
)

// EngineOptions say where the rules are.
type EngineOptions struct {
	// File holds the rules of the whole server. When Needed is false and there never was one, the built-in rules
	// count.
	File   string
	Needed bool
	// Tenants is a folder with <tenant>.yaml for each tenant that has rules of its own. It need not exist.
	Tenants string
	// Changed is told of each file that was read anew, also of a wrong one, which does not count. tenant is "" for
	// the server's. May be nil.
	Changed func(tenant string, s Status)
	Log     *slog.Logger // nil = none
}

// Status is the state of one file of rules.
type Status struct {
	Source   string    // "built-in", "file", or "none": a tenant without rules of its own
	Text     string    // what counts
	Digest   string    // of that
	LoadedAt time.Time // zero for built-in rules
	// Problem says why what stands in the file does not count; nil when it does. The rules from before count until it
	// is right.
	Problem error
}

// Engine decides by the rules of files, and follows their changes. All methods may be called at the same time.
type Engine struct {
	o    EngineOptions
	set  atomic.Pointer[Set]
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu    sync.Mutex // held while files are read
	files map[string]*rulesFile
	most  int             // of files
	left  map[string]bool // tenants whose files are not read: they may do nothing
}

// rulesFile is a file that was looked at. tenant is "" for the server's.
type rulesFile struct {
	stamp    lockedfile.Stamp
	seen     time.Time
	rules    *Rules // that count; nil: none ever did
	loadedAt time.Time
	problem  error
}

// Open reads the rules and begins to follow their files. An error is that those of the server cannot be read: it must
// not start without them, nor when it cannot know which tenants have rules. A tenant whose rules cannot be read is
// denied everything.
func Open(o EngineOptions) (*Engine, error) { return open(o, maxTenants) }

func open(o EngineOptions, most int) (*Engine, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Changed == nil {
		o.Changed = func(string, Status) {}
	}
	e := &Engine{o: o, files: map[string]*rulesFile{}, most: most}
	if _, err := e.tenantFiles(); err != nil {
		return nil, fmt.Errorf("policy: the folder of tenants' rules cannot be read: %w", err)
	}
	e.mu.Lock()
	e.look(time.Now())
	problem := e.file("").problem
	e.mu.Unlock()
	if problem != nil {
		return nil, fmt.Errorf("policy: %s:\n%w", o.File, problem)
	}
	ctx, stop := context.WithCancel(context.Background())
	e.stop = stop
	e.wg.Go(func() { e.follow(ctx) })
	return e, nil
}

// Close stops following. The rules go on to count.
func (e *Engine) Close() error {
	e.stop()
	e.wg.Wait()
	return nil
}

func (e *Engine) follow(ctx context.Context) {
	for now := range every.Tick(ctx, lookEvery) {
		e.Look(now)
	}
}

// Look reads what has changed. The engine does so by itself.
func (e *Engine) Look(now time.Time) {
	e.mu.Lock()
	changed := e.look(now)
	told := map[string]Status{}
	for _, tenant := range changed {
		told[tenant] = e.status(tenant)
	}
	e.mu.Unlock()
	for tenant, s := range told {
		e.announce(tenant, s)
	}
}

func (e *Engine) announce(tenant string, s Status) {
	name := tenant
	if name == "" {
		name = "(the server's)"
	}
	if s.Problem != nil {
		e.o.Log.Error("policy: the file is wrong and does not count; the rules from before do", "tenant", name, "in force", s.Digest, "error", s.Problem)
	} else {
		e.o.Log.Info("policy: rules in force", "tenant", name, "source", s.Source, "digest", s.Digest)
	}
	e.o.Changed(tenant, s)
}

func (e *Engine) path(tenant string) string {
	if tenant == "" {
		return e.o.File
	}
	return filepath.Join(e.o.Tenants, tenant+rulesSuffix)
}

func (e *Engine) file(tenant string) *rulesFile {
	f := e.files[tenant]
	if f == nil {
		f = &rulesFile{}
		e.files[tenant] = f
	}
	return f
}

// look reads what has changed, puts the rules together and returns the tenants whose files changed. mu is held.
func (e *Engine) look(now time.Time) []string {
	tenants := map[string]bool{"": true}
	for name := range e.files {
		tenants[name] = true
	}
	listed, err := e.tenantFiles()
	if err != nil {
		e.o.Log.Error("policy: the folder of tenants' rules cannot be read", "error", err)
	}
	left := map[string]bool{}
	for _, file := range listed {
		name := strings.TrimSuffix(file, rulesSuffix)
		switch {
		case name == file: // its tenant would have no rules, for a slip of the pen
			left[strings.TrimSuffix(file, otherSuffix)] = true
		case tenants[name]:
		case len(tenants) >= e.most:
			left[name] = true
		default:
			tenants[name] = true
		}
	}
	var changed []string
	for name := range tenants {
		if e.file(name).look(e.path(name), now, e.check(name)) {
			changed = append(changed, name)
		}
	}
	fresh := err == nil && !maps.Equal(left, e.left)
	if fresh {
		e.left = left
		if len(left) > 0 {
			e.o.Log.Error("policy: rules of tenants are not read, so these tenants may do nothing: there are too many, or a file ends in "+otherSuffix+", not "+rulesSuffix,
				"tenants", slices.Sorted(maps.Keys(left))[:min(len(left), maxToldTenants)], "files", len(left), "most", e.most)
		}
	}
	if len(changed) > 0 || fresh || e.set.Load() == nil {
		e.set.Store(e.assemble())
	}
	return changed
}

// tenantFiles lists the files of rules of tenants, and those that are meant to be some.
func (e *Engine) tenantFiles() (files []string, err error) {
	if e.o.Tenants == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(e.o.Tenants)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, entry := range entries {
		file := entry.Name()
		if name := strings.TrimSuffix(strings.TrimSuffix(file, rulesSuffix), otherSuffix); name != file && sandbox.CheckOwnerName("tenant", name) == nil {
			files = append(files, file)
		}
	}
	return files, err
}

// check says what of a file of rules is not for this place. rules is nil when there is no file. mu is held.
func (e *Engine) check(tenant string) func(rules *Rules) error {
	return func(rules *Rules) error {
		switch {
		case tenant != "" && rules != nil:
			return rules.CheckTenant()
		case tenant == "" && rules == nil && (e.o.Needed || e.file("").rules != nil):
			return errors.New("the file is not there")
		}
		return nil
	}
}

// look reads the file when it has changed, and reports whether it had.
func (f *rulesFile) look(path string, now time.Time, check func(*Rules) error) bool {
	stamp, err := lockedfile.Stat(path)
	if err == nil && stamp == f.stamp && !f.seen.IsZero() && !stamp.Racy(f.seen) {
		return false
	}
	first := f.seen.IsZero()
	stamp, text, readErr := lockedfile.Read(path, MaxFile)
	if err = errors.Join(err, readErr); err != nil {
		err = errors.New("it cannot be read") // the error names a host path
	}
	if !first && err == nil && stamp == f.stamp && f.rules != nil && string(f.rules.Text) == string(text) {
		f.seen = now
		return false
	}
	f.seen, f.stamp = now, stamp
	var rules *Rules
	exists := stamp != lockedfile.Stamp{}
	if err == nil && exists {
		rules, err = Parse(text)
	}
	if err == nil {
		err = check(rules)
	}
	before, same := f.problem, rules != nil && f.rules != nil && rules.Digest == f.rules.Digest
	if f.problem = err; err == nil {
		gone := f.rules != nil && rules == nil
		if f.rules, f.loadedAt = rules, now; !same {
			return exists || gone
		}
		return before != nil
	}
	return before == nil || before.Error() != err.Error()
}

// assemble makes the set that counts. mu is held.
func (e *Engine) assemble() *Set {
	s := &Set{Global: Default(), Tenants: map[string]*Rules{}, Broken: map[string]bool{}}
	for name, f := range e.files {
		switch {
		case name == "" && f.rules != nil:
			s.Global = f.rules
		case name == "":
		case f.rules != nil:
			s.Tenants[name] = f.rules
		case f.problem != nil:
			s.Broken[name] = true
		}
	}
	for name := range e.left {
		if s.Tenants[name] == nil {
			s.Broken[name] = true
		}
	}
	return s
}

// Status tells of the server's rules, or with a tenant of its own.
func (e *Engine) Status(tenant string) Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.status(tenant)
}

func (e *Engine) status(tenant string) Status {
	f := e.files[tenant]
	s := Status{Source: "none"}
	if f != nil {
		s.Problem = f.problem
		if f.rules != nil {
			s.Source, s.Text, s.Digest, s.LoadedAt = "file", string(f.rules.Text), f.rules.Digest, f.loadedAt
			return s
		}
	}
	if tenant == "" {
		s.Source, s.Text, s.Digest = "built-in", string(Default().Text), Default().Digest
	}
	return s
}

// Problems are the files that are wrong, by tenant; "" is the server's.
func (e *Engine) Problems() map[string]error {
	e.mu.Lock()
	defer e.mu.Unlock()
	wrong := map[string]error{}
	for name, f := range e.files {
		if f.problem != nil {
			wrong[name] = f.problem
		}
	}
	return wrong
}

// Put replaces the rules of the server, or with a tenant its own, in one step; an empty text takes a tenant's away.
// They count when it returns; other servers of the data folder follow within a second. If was is given, it must be the
// digest of what is there: Conflict otherwise. Invalid has a field for each problem.
func (e *Engine) Put(ctx context.Context, tenant, text, was string) (Status, error) {
	remove := tenant != "" && strings.TrimSpace(text) == ""
	if !remove {
		rules, err := Parse([]byte(text))
		if err == nil && tenant != "" {
			err = rules.CheckTenant()
		}
		if err != nil {
			return Status{}, invalid(err)
		}
	}
	e.mu.Lock()
	if e.files[tenant] == nil && len(e.files) >= e.most {
		e.mu.Unlock()
		return Status{}, sandbox.Errorf(sandbox.QuotaExceeded, "%d files of rules are read, the most: delete those of another tenant, and start the server again", e.most)
	}
	path := e.path(tenant)
	err := lockedfile.Edit(ctx, path, MaxFile, func(old []byte) ([]byte, error) {
		now := ""
		switch {
		case old != nil:
			now = digest(old)
		case tenant == "":
			now = Default().Digest
		}
		if was != "" && was != now {
			return nil, sandbox.Errorf(sandbox.Conflict, "the rules are others by now: their digest is %s", now)
		}
		if remove {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			return nil, nil
		}
		return []byte(text), nil
	})
	if err != nil {
		e.mu.Unlock()
		var known *sandbox.Error
		if errors.As(err, &known) {
			return Status{}, err
		}
		return Status{}, sandbox.Wrap(sandbox.Unavailable, err, "the rules cannot be written")
	}
	if f := e.file(tenant); f.look(path, time.Now(), e.check(tenant)) {
		e.set.Store(e.assemble())
	}
	s := e.status(tenant)
	e.mu.Unlock()
	e.announce(tenant, s)
	return s, nil
}

// invalid is the error of rules that a caller sent.
func invalid(err error) error {
	var problems Problems
	if !errors.As(err, &problems) {
		return err
	}
	fields := make([]sandbox.Field, 0, len(problems))
	for _, p := range problems {
		name := p.Field
		if name == "" {
			name = "text"
		}
		fields = append(fields, sandbox.Field{Name: name, Detail: fmt.Sprintf("line %d: %s", p.Line, p.Text)})
	}
	return &sandbox.Error{Kind: sandbox.Invalid, Detail: "the rules are wrong: " + problems.Error(), Fields: fields}
}

// With returns what decides with other rules than the ones in force. They replace the server's, or with a tenant its
// own. "" means the rules in force.
func (e *Engine) With(tenant, text string) (*Set, error) {
	set := e.set.Load()
	if text == "" {
		return set, nil
	}
	rules, err := Parse([]byte(text))
	if err == nil && tenant != "" {
		err = rules.CheckTenant()
	}
	if err != nil {
		return nil, invalid(err)
	}
	other := *set
	if tenant == "" {
		other.Global = rules
	} else {
		other.Tenants = maps.Clone(set.Tenants)
		other.Tenants[tenant] = rules
	}
	return &other, nil
}

// Decide decides by the rules in force.
func (e *Engine) Decide(ctx context.Context, r Request) Decision { return e.set.Load().Decide(ctx, r) }

// Requires implements Decider.
func (e *Engine) Requires(t sandbox.Thread, tool sandbox.Tool) []string {
	return e.set.Load().Requires(t.Tenant, tool)
}

// Hides implements Decider.
func (e *Engine) Hides(c sandbox.Caller, t sandbox.Thread, tool sandbox.Tool) bool {
	return e.set.Load().Hides(c, t, tool)
}
