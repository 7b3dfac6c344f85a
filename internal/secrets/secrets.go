package secrets

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// Bounds of a value, in bytes. A shorter one could not be kept out of outputs without garbling them.
const (
	MinBytes = 8
	MaxBytes = 16 << 10
)

// maxStored bounds the secrets of one tenant, and maxOwn those of one user among them: no user takes all places of
// the others, and an administrator could not even see by whose secrets they are taken.
const (
	maxStored = 10_000
	maxOwn    = 500
)

// namePattern is what a name is made of, so that it can be a variable and a file.
var namePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,127}$`)

// CheckName reports why a secret cannot be named so, as an Invalid error.
func CheckName(name string) error {
	if !namePattern.MatchString(name) {
		return sandbox.Errorf(sandbox.Invalid, "secret name %.140q: use 1 to 128 of the characters A-Z a-z 0-9 _ . -, beginning with a letter or _", name)
	}
	return nil
}

func checkValue(name, value string) error {
	switch {
	case len(value) < MinBytes:
		return sandbox.Errorf(sandbox.Invalid, "the secret %q has %d bytes, at least %d: a shorter one could not be hidden in outputs", name, len(value), MinBytes)
	case len(value) > MaxBytes:
		return sandbox.Errorf(sandbox.Invalid, "the secret %q has %d bytes, at most %d", name, len(value), MaxBytes)
	case strings.ContainsRune(value, 0) || !utf8.ValidString(value):
		return sandbox.Errorf(sandbox.Invalid, "the secret %q is no text: it has a NUL or is not UTF-8", name)
	}
	return nil
}

// The kinds of scope: for whom a stored secret is.
const (
	ScopeTenant = "tenant" // all its users
	ScopeUser   = "user"
	ScopeServer = "server" // an MCP server
	ScopeSkill  = "skill"
)

// pinnedSkill is the name of a skill with the digest of its files, which says which one is meant wherever it is from.
var pinnedSkill = regexp.MustCompile(`^[^@]+@sha256:[0-9a-f]{64}$`)

// Scope says for whom a stored secret is: "tenant", "user/NAME", "server/NAME", "skill/NAME" or
// "skill/NAME@DIGEST".
type Scope string

// ScopeOf makes the scope of a kind and a name.
func ScopeOf(kind, name string) Scope {
	if kind == ScopeTenant {
		return ScopeTenant
	}
	return Scope(kind + "/" + name)
}

// parts returns kind and name.
func (s Scope) parts() (kind, name string) {
	kind, name, _ = strings.Cut(string(s), "/")
	return kind, name
}

// resolve checks a scope that a caller names, and that the caller may write there. "" and "user" are the
// caller's own.
func (s Scope) resolve(c sandbox.Caller) (Scope, error) {
	kind, name := s.parts()
	switch {
	case s == "" || s == ScopeUser || kind == ScopeUser && name == c.User:
		return ScopeOf(ScopeUser, c.User), nil
	case kind == ScopeUser:
		return "", sandbox.Errorf(sandbox.Forbidden, "the secrets of another user are that user's alone")
	case s == ScopeTenant:
	case kind == ScopeSkill && strings.Contains(name, "@") && !pinnedSkill.MatchString(name):
		detail := "want skill/NAME, of a public skill, or skill/NAME@sha256:DIGEST, of the skill with these files"
		return "", &sandbox.Error{Kind: sandbox.Invalid, Detail: "scope: " + detail, Fields: []sandbox.Field{{Name: "scope", Detail: detail}}}
	case (kind == ScopeServer || kind == ScopeSkill) && name != "" && len(name) <= 256 && !strings.ContainsAny(name, "/\x00"):
	default:
		return "", &sandbox.Error{Kind: sandbox.Invalid, Detail: "scope: want user, tenant, server/NAME or skill/NAME", Fields: []sandbox.Field{{Name: "scope", Detail: "want user, tenant, server/NAME or skill/NAME"}}}
	}
	if !c.Admin() {
		return "", sandbox.Errorf(sandbox.Forbidden, "secrets of a tenant, a server or a skill need administration rights; without a scope it is your own")
	}
	return s, nil
}

// Info is all that is told of a secret.
type Info struct {
	Name      string     `json:"name"`
	Scope     string     `json:"scope" doc:"tenant, user/NAME, server/NAME or skill/NAME"`
	Source    string     `json:"source" enum:"stored,file,env"`
	Exec      bool       `json:"exec" doc:"It may be in the environment of an exec (env_secrets)"`
	ChangedAt *time.Time `json:"changed_at,omitempty"`
	ChangedBy string     `json:"changed_by,omitempty"`
	// LastUsedAt is when a connection or an exec was given the value.
	LastUsedAt *time.Time `json:"last_used_at,omitempty" doc:"To half a minute; absent when never, and for files and variables"`
}

// Options say where secrets come from. Store, Keys and Log are needed.
type Options struct {
	Store state
	Keys  *Keys
	// Env are the variables of this process that are secrets, Lookup returns them.
	Env    []string
	Lookup func(name string) (string, bool)
	// Dir is a folder whose files are secrets by their names; "" = none.
	Dir string
	// Exec are the names of variables and files that may be in the environment of an exec.
	Exec []string
	// Others are what else is sealed by Keys, sealed anew at a rotation.
	Others []func(ctx context.Context) (changed int, err error)
	Log    *slog.Logger
}

// state is what is needed of the store.
type state interface {
	PutSecret(ctx context.Context, r store.SecretRecord) error
	Secrets(ctx context.Context, tenant string) ([]store.SecretRecord, error)
	SecretsNamed(ctx context.Context, tenant, name string, scopes []string) ([]store.SecretRecord, error)
	DeleteSecret(ctx context.Context, tenant, scope, name string) error
	ResealSecret(ctx context.Context, was, now store.SecretRecord) (bool, error)
	SecretTenants(ctx context.Context) ([]string, error)
	SecretVersion(ctx context.Context) (string, error)
	SecretUsed(ctx context.Context, tenant, scope, name string, at time.Time) error
}

// Service is the secrets of a server. Make one with Open; all methods may be called at the same time.
type Service struct {
	o      Options
	others sync.Mutex // guards o.Others
	follow follower
	uses   uses
}

// Open makes a Service. It follows changes, and writes down uses, until Close.
func Open(o Options) *Service {
	s := &Service{o: o}
	s.follow.start(s)
	s.uses.start(o.Store)
	return s
}

// Close ends what follows changes, and writes down the last uses.
func (s *Service) Close() error {
	s.follow.close()
	s.uses.close()
	return nil
}

// AlsoRenew adds something that is sealed by the keys and is sealed anew at a rotation.
func (s *Service) AlsoRenew(renew func(ctx context.Context) (changed int, err error)) {
	s.others.Lock()
	defer s.others.Unlock()
	s.o.Others = append(s.o.Others, renew)
}

// purposeOf binds a sealed value to its place: moved elsewhere in the state it cannot be opened.
func purposeOf(tenant, scope, name string) string {
	return fmt.Sprintf("secret %q %q %q", tenant, scope, name)
}

// Put stores a value. exec says that it may be in the environment of an exec. made is false when it replaced
// one. An error never has the value: Invalid, Forbidden, Unavailable.
func (s *Service) Put(ctx context.Context, c sandbox.Caller, scope Scope, name, value string, exec bool) (info Info, made bool, err error) {
	if err := CheckName(name); err != nil {
		return Info{}, false, err
	}
	if scope, err = scope.resolve(c); err != nil {
		return Info{}, false, err
	}
	if err := checkValue(name, value); err != nil {
		return Info{}, false, err
	}
	known, err := s.o.Store.SecretsNamed(ctx, c.Tenant, name, []string{string(scope)})
	if err != nil {
		return Info{}, false, err
	}
	if len(known) == 0 {
		all, err := s.o.Store.Secrets(ctx, c.Tenant)
		if err != nil {
			return Info{}, false, err
		}
		if err := roomFor(scope, all); err != nil {
			return Info{}, false, err
		}
	}
	sealed, err := s.o.Keys.Seal(purposeOf(c.Tenant, string(scope), name), []byte(value))
	if err != nil {
		return Info{}, false, err
	}
	kind, _ := scope.parts()
	r := store.SecretRecord{
		Tenant: c.Tenant, Scope: string(scope), Name: name, Exec: exec || kind == ScopeSkill, Sealed: sealed,
		ChangedAt: time.Now().UTC(), ChangedBy: c.User,
	}
	if err := s.o.Store.PutSecret(ctx, r); err != nil {
		return Info{}, false, err
	}
	s.follow.changed()
	return infoOf(r), len(known) == 0, nil
}

// roomFor says why a tenant that has all these secrets can have no other one in a scope.
func roomFor(scope Scope, all []store.SecretRecord) error {
	if len(all) >= maxStored {
		return sandbox.Errorf(sandbox.QuotaExceeded, "the tenant has %d secrets, its most", maxStored)
	}
	if kind, _ := scope.parts(); kind != ScopeUser {
		return nil
	}
	own := 0
	for _, r := range all {
		if r.Scope == string(scope) {
			own++
		}
	}
	if own >= maxOwn {
		return sandbox.Errorf(sandbox.QuotaExceeded, "you have %d secrets, your most: delete some", own)
	}
	return nil
}

func infoOf(r store.SecretRecord) Info {
	return Info{Name: r.Name, Scope: r.Scope, Source: "stored", Exec: r.Exec, ChangedAt: &r.ChangedAt, ChangedBy: r.ChangedBy}
}

// Delete takes a stored secret away. NotFound, Forbidden, Unavailable.
func (s *Service) Delete(ctx context.Context, c sandbox.Caller, scope Scope, name string) error {
	scope, err := scope.resolve(c)
	if err != nil {
		return err
	}
	known, err := s.o.Store.SecretsNamed(ctx, c.Tenant, name, []string{string(scope)})
	if err != nil {
		return err
	}
	if len(known) == 0 {
		return sandbox.Errorf(sandbox.NotFound, "there is no secret %.140q in the scope %.300s", name, scope)
	}
	if err := s.o.Store.DeleteSecret(ctx, c.Tenant, string(scope), name); err != nil {
		return err
	}
	s.uses.forget(stored{c.Tenant, string(scope), name})
	s.follow.changed()
	return nil
}

// List returns the secrets that a caller can use or change, without values. All callers get their own
// secrets, and none of another user. Administrators also get all others of the tenant; other callers get the
// ones that their execs may have.
func (s *Service) List(ctx context.Context, c sandbox.Caller) ([]Info, error) {
	all, err := s.o.Store.Secrets(ctx, c.Tenant)
	if err != nil {
		return nil, err
	}
	list := []Info{}
	for _, r := range all {
		if kind, name := Scope(r.Scope).parts(); kind == ScopeUser && name != c.User || kind != ScopeUser && !c.Admin() && !r.Exec {
			continue
		}
		info := infoOf(r)
		info.LastUsedAt = s.uses.of(stored{r.Tenant, r.Scope, r.Name}, r.LastUsedAt)
		list = append(list, info)
	}
	for _, i := range s.operators() {
		if c.Admin() || i.Exec {
			list = append(list, i)
		}
	}
	slices.SortStableFunc(list, func(a, b Info) int { return strings.Compare(a.Name+"\x00"+a.Scope, b.Name+"\x00"+b.Scope) })
	return list, nil
}

// Get is List for one name.
func (s *Service) Get(ctx context.Context, c sandbox.Caller, name string) ([]Info, error) {
	all, err := s.List(ctx, c)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(i Info) bool { return i.Name != name })
	if len(all) == 0 {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no secret %.140q", name)
	}
	return all, nil
}

// scopesOf are the scopes that count for an asker, the first one first.
func scopesOf(a sandbox.SecretAsker) []string {
	var list []string
	if a.User != "" && !a.NotOwn {
		list = append(list, string(ScopeOf(ScopeUser, a.User)))
	}
	if a.OwnOnly {
		return list
	}
	if a.Server != "" {
		list = append(list, string(ScopeOf(ScopeServer, a.Server)))
	}
	return append(append(list, skillScopes(a.Skill)...), ScopeTenant)
}

// skillScopes are those of a skill whose script runs. A user can give a skill of its own any name, so that a name
// alone stands for the public skill, which only the operator changes. Any other skill is known by its files.
func skillScopes(sk *sandbox.Skill) []string {
	if sk == nil {
		return nil
	}
	var list []string
	if sk.Digest != "" {
		list = append(list, string(ScopeOf(ScopeSkill, sk.Name+"@"+sk.Digest)))
	}
	if sk.Category == sandbox.CategoryPublic {
		list = append(list, string(ScopeOf(ScopeSkill, sk.Name)))
	}
	return list
}

// ForServer returns the value that a name stands for in the configuration of an MCP server. An error is NotFound,
// naming the secret, or Unavailable; there is never an empty value.
func (s *Service) ForServer(ctx context.Context, a sandbox.SecretAsker, name string) (string, error) {
	return s.value(ctx, a, name, false)
}

// ForExec returns the values of names for the environment of an exec. NotFound or Forbidden name the secret.
func (s *Service) ForExec(ctx context.Context, a sandbox.SecretAsker, names []string) (map[string]string, error) {
	values := map[string]string{}
	for _, name := range names {
		v, err := s.value(ctx, a, name, true)
		if err != nil {
			return nil, err
		}
		values[name] = v
	}
	return values, nil
}

func (s *Service) value(ctx context.Context, a sandbox.SecretAsker, name string, exec bool) (string, error) {
	if err := CheckName(name); err != nil {
		return "", err
	}
	scopes := scopesOf(a)
	if a.Tenant != "" { // else it is a connection that all tenants share
		found, err := s.o.Store.SecretsNamed(ctx, a.Tenant, name, scopes)
		if err != nil {
			return "", err
		}
		for _, scope := range scopes {
			i := slices.IndexFunc(found, func(r store.SecretRecord) bool { return r.Scope == scope })
			switch {
			case i < 0:
				continue
			case exec && !found[i].Exec:
				return "", errNotForExecs(name)
			}
			plain, err := s.o.Keys.Open(purposeOf(a.Tenant, scope, name), found[i].Sealed)
			if err != nil {
				return "", sandbox.Wrap(sandbox.KindOf(err), err, "the secret %q cannot be read: %s", name, detailOf(err))
			}
			s.uses.note(stored{a.Tenant, scope, name})
			return string(plain), nil
		}
	}
	if a.OwnOnly {
		return "", sandbox.Errorf(sandbox.NotFound, "you have no secret %q; store it with: skerry secrets set %s", name, name)
	}
	v, ok, err := s.operator(name)
	switch {
	case err != nil:
		return "", err
	case !ok:
		return "", sandbox.Errorf(sandbox.NotFound, "there is no secret %q (looked for in: %s, file, env); store it with: skerry secrets set %s", name, strings.Join(scopes, ", "), name)
	case exec && !slices.Contains(s.o.Exec, name):
		return "", errNotForExecs(name)
	}
	return v, checkValue(name, v)
}

func errNotForExecs(name string) error {
	return sandbox.Errorf(sandbox.Forbidden, "the secret %q may not be in the environment of an exec: store it with exec (skerry secrets set --exec), or name it in the server's secrets.exec", name)
}

func detailOf(err error) string {
	var known *sandbox.Error
	if errors.As(err, &known) {
		return known.Detail
	}
	return "internal error"
}
