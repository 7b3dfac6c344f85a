package secrets

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	alice = sandbox.Caller{Owner: sandbox.Owner{Tenant: "acme", User: "alice"}}
	bob   = sandbox.Caller{Owner: sandbox.Owner{Tenant: "acme", User: "bob"}}
	admin = sandbox.Caller{Owner: sandbox.Owner{Tenant: "acme", User: "root"}, Role: sandbox.RoleAdmin}
	other = sandbox.Caller{Owner: sandbox.Owner{Tenant: "other", User: "alice"}, Role: sandbox.RoleAdmin}
)

func at(tenant, user, server string) sandbox.SecretAsker {
	return sandbox.SecretAsker{Owner: sandbox.Owner{Tenant: tenant, User: user}, Server: server}
}

// house is a service with its state on the disk.
type house struct {
	*Service
	store   *store.Store
	keys    *Keys
	data    string
	keyFile string
	dir     string
	env     map[string]string
}

func newHouse(t *testing.T) *house {
	t.Helper()
	root := t.TempDir()
	h := &house{data: filepath.Join(root, "data"), keyFile: filepath.Join(root, "keys", "secrets.key"), dir: filepath.Join(root, "mounted"), env: map[string]string{}}
	for _, dir := range []string{h.data, h.dir} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	h.open(t)
	return h
}

func (h *house) open(t *testing.T) {
	t.Helper()
	var err error
	if h.keys, err = OpenKeys(h.keyFile, h.data); err != nil {
		t.Fatal(err)
	}
	if h.store, err = store.Open(t.Context(), store.Options{Journal: filepath.Join(h.data, "state.jsonl")}); err != nil {
		t.Fatal(err)
	}
	h.Service = Open(Options{
		Store: h.store, Keys: h.keys, Log: slog.New(slog.DiscardHandler), Dir: h.dir, Env: []string{"FROM_ENV", "ALSO_ENV"}, Exec: []string{"ALSO_ENV"},
		Lookup: func(name string) (string, bool) { v, ok := h.env[name]; return v, ok },
	})
	t.Cleanup(h.close)
}

func (h *house) close() {
	_ = h.Service.Close()
	_ = h.store.Close()
}

func (h *house) put(t *testing.T, c sandbox.Caller, scope Scope, name, value string, exec bool) {
	t.Helper()
	if _, _, err := h.Put(t.Context(), c, scope, name, value, exec); err != nil {
		t.Fatal(err)
	}
}

func (h *house) want(t *testing.T, a sandbox.SecretAsker, name, want string) {
	t.Helper()
	if got, err := h.ForServer(t.Context(), a, name); got != want || err != nil {
		t.Errorf("%s for %+v: %q, %v; want %q", name, a, got, err, want)
	}
}

// files returns everything that the data folder has, in one text.
func (h *house) files(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(h.data, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// TestLastUsed: the secret that a value came from says when, here at once and elsewhere once it is written down. Who was
// refused, and who looked at a list, used none.
func TestLastUsed(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.env["FROM_ENV"] = "of-the-variable"
	h.put(t, admin, "server/crm", "TOKEN", "of-the-server", false)
	h.put(t, admin, ScopeTenant, "TOKEN", "of-the-tenant", true)
	h.put(t, other, ScopeTenant, "TOKEN", "of-another-one", false)
	used := func(c sandbox.Caller) string {
		t.Helper()
		list, err := h.List(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, i := range list {
			if i.LastUsedAt != nil && time.Since(*i.LastUsedAt) < time.Minute {
				names = append(names, i.Name+" "+i.Scope)
			}
		}
		return strings.Join(names, ", ")
	}
	if _, err := h.ForExec(t.Context(), at("other", "bob", ""), []string{"TOKEN"}); !errors.Is(err, sandbox.Forbidden) {
		t.Error(err)
	}
	if got := used(admin) + used(other); got != "" {
		t.Errorf("used before anything was: %s", got)
	}
	h.want(t, at("acme", "alice", "crm"), "TOKEN", "of-the-server")
	h.want(t, at("acme", "alice", "crm"), "FROM_ENV", "of-the-variable")
	if got := used(admin); got != "TOKEN server/crm" {
		t.Errorf("used: %s", got)
	}
	h.close()
	h.open(t) // another server, or this one later
	if got := used(admin); got != "TOKEN server/crm" {
		t.Errorf("written down: %s", got)
	}
	if _, err := h.ForExec(t.Context(), at("acme", "alice", ""), []string{"TOKEN"}); err != nil {
		t.Error(err)
	}
	if got := used(admin); got != "TOKEN server/crm, TOKEN tenant" {
		t.Errorf("used: %s", got)
	}
	if got := used(other); got != "" {
		t.Errorf("of another tenant: %s", got)
	}
	if err := h.Delete(t.Context(), admin, ScopeTenant, "TOKEN"); err != nil {
		t.Fatal(err)
	}
	h.put(t, admin, ScopeTenant, "TOKEN", "of-the-tenant-again", true)
	if got := used(admin); got != "TOKEN server/crm" {
		t.Errorf("a new one of an old name is used: %s", got)
	}
}

// TestUsesAreBounded: more secrets than are remembered are used all the same.
func TestUsesAreBounded(t *testing.T) {
	t.Parallel()
	u := uses{last: map[stored]time.Time{}}
	for i := range maxUses + 10 {
		u.note(stored{"acme", ScopeTenant, fmt.Sprint("S", i)})
	}
	u.note(stored{"acme", ScopeTenant, "S0"})
	if len(u.last) != maxUses {
		t.Errorf("%d are remembered", len(u.last))
	}
}

// A name stands for the most special value: the user's, the server's, the tenant's, the file, the variable.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.env["FROM_ENV"] = "of-the-variable"
	asker := at("acme", "alice", "crm")
	h.want(t, asker, "FROM_ENV", "of-the-variable")
	if err := os.WriteFile(filepath.Join(h.dir, "FROM_ENV"), []byte("of-the-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.want(t, asker, "FROM_ENV", "of-the-file")
	h.put(t, admin, ScopeTenant, "FROM_ENV", "of-the-tenant", false)
	h.want(t, asker, "FROM_ENV", "of-the-tenant")
	h.put(t, admin, "server/crm", "FROM_ENV", "of-the-server", false)
	h.want(t, asker, "FROM_ENV", "of-the-server")
	h.put(t, alice, "", "FROM_ENV", "of-the-user", false)
	h.want(t, asker, "FROM_ENV", "of-the-user")

	h.want(t, at("acme", "bob", "crm"), "FROM_ENV", "of-the-server")
	h.want(t, at("acme", "bob", "mail"), "FROM_ENV", "of-the-tenant")
	h.want(t, at("acme", "", "mail"), "FROM_ENV", "of-the-tenant")
	h.want(t, at("other", "alice", "crm"), "FROM_ENV", "of-the-file")
	h.want(t, at("", "", "crm"), "FROM_ENV", "of-the-file") // of all tenants
	if err := h.Delete(t.Context(), alice, "", "FROM_ENV"); err != nil {
		t.Fatal(err)
	}
	h.want(t, asker, "FROM_ENV", "of-the-server")
}

func TestVariablesOutsideOfTheListAreNone(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.env["AWS_SECRET_ACCESS_KEY"] = "not-on-the-list"
	v, err := h.ForServer(t.Context(), at("acme", "alice", ""), "AWS_SECRET_ACCESS_KEY")
	if v != "" || !errors.Is(err, sandbox.NotFound) || !strings.Contains(err.Error(), `"AWS_SECRET_ACCESS_KEY"`) {
		t.Errorf("%q, %v", v, err)
	}
}

// Who chooses an address must not get what others send there, and a user's own server must not get what is the tenant's.
func TestOnlyOwnAndNotOwn(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.put(t, admin, ScopeTenant, "HOST", "of-the-tenant", true)
	h.put(t, alice, "", "HOST", "of-the-user", true)
	a := at("acme", "alice", "crm")
	a.NotOwn = true
	h.want(t, a, "HOST", "of-the-tenant")
	a = at("acme", "alice", "crm")
	a.OwnOnly = true
	h.want(t, a, "HOST", "of-the-user")
	a.User = "bob"
	if v, err := h.ForServer(t.Context(), a, "HOST"); v != "" || !errors.Is(err, sandbox.NotFound) {
		t.Errorf("%q, %v", v, err)
	}
}

// Kubernetes exchanges a link to a folder; the next use gets the new value, and who follows is told.
func TestFilesAreFollowed(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for i, v := range []string{"the-first-value", "the-second-value"} {
		dir := filepath.Join(h.dir, fmt.Sprintf("..2026_%d", i))
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "TOKEN"), []byte(v), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to string) {
		t.Helper()
		if err := errors.Join(os.Symlink(to, filepath.Join(h.dir, "..new")), os.Rename(filepath.Join(h.dir, "..new"), filepath.Join(h.dir, "..data"))); err != nil {
			t.Fatal(err)
		}
	}
	link("..2026_0")
	if err := os.Symlink("..data/TOKEN", filepath.Join(h.dir, "TOKEN")); err != nil {
		t.Fatal(err)
	}
	h.want(t, at("acme", "", ""), "TOKEN", "the-first-value")
	told := make(chan struct{}, 10)
	h.OnChange(func() { told <- struct{}{} })
	link("..2026_1")
	h.want(t, at("acme", "", ""), "TOKEN", "the-second-value")
	select {
	case <-told:
	case <-time.After(time.Minute):
		t.Error("nobody was told")
	}
	list, err := h.List(t.Context(), admin)
	if err != nil || len(list) != 1 || list[0].Name != "TOKEN" || list[0].Source != "file" {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestWhoMayWrite(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for _, c := range []struct {
		who   sandbox.Caller
		scope Scope
		want  sandbox.Kind
	}{
		{alice, "", ""}, {alice, "user", ""}, {alice, "user/alice", ""},
		{alice, "user/bob", sandbox.Forbidden}, {admin, "user/bob", sandbox.Forbidden},
		{alice, "tenant", sandbox.Forbidden}, {alice, "server/x", sandbox.Forbidden}, {alice, "skill/x", sandbox.Forbidden},
		{admin, "tenant", ""}, {admin, "server/x", ""}, {admin, "skill/x", ""},
		{admin, "server/", sandbox.Invalid}, {admin, "server", sandbox.Invalid}, {admin, "tenant/x", sandbox.Invalid}, {admin, "server/a/b", sandbox.Invalid}, {admin, "thread/x", sandbox.Invalid},
	} {
		_, _, err := h.Put(t.Context(), c.who, c.scope, "NAME", "long-enough", false)
		if sandbox.KindOf(err) != c.want {
			t.Errorf("%s into %q: %v", c.who.User, c.scope, err)
		}
		if err := h.Delete(t.Context(), c.who, c.scope, "NAME"); sandbox.KindOf(err) != c.want {
			t.Errorf("%s deletes in %q: %v", c.who.User, c.scope, err)
		}
	}
}

// An error tells the name and what is wrong, never the value.
func TestWhatCanBeASecret(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for _, c := range []struct{ name, value string }{
		{"NAME", ""}, {"NAME", "short12"}, {"NAME", "with-\x00-in-it"}, {"NAME", "\xff\xfeno-text"}, {"NAME", strings.Repeat("x", MaxBytes+1)},
		{"", "long-enough"}, {"../NAME", "long-enough"}, {"a b", "long-enough"}, {strings.Repeat("n", 129), "long-enough"}, {"a/b", "long-enough"},
	} {
		_, _, err := h.Put(t.Context(), alice, "", c.name, c.value, false)
		if !errors.Is(err, sandbox.Invalid) || c.value != "" && strings.Contains(err.Error(), c.value) {
			t.Errorf("%q: %v", c.name, err)
		}
	}
	if err := os.WriteFile(filepath.Join(h.dir, "EMPTY"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if v, err := h.ForServer(t.Context(), at("acme", "", ""), "EMPTY"); v != "" || !errors.Is(err, sandbox.Invalid) {
		t.Errorf("an empty file: %q, %v", v, err)
	}
}

// What is listed: for users their own and what their execs may have, of other tenants nothing, never a value.
// TestNoUserTakesAllPlaces: a user has a bound of its own, far below that of the tenant.
func TestNoUserTakesAllPlaces(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for i := range maxOwn {
		r := store.SecretRecord{Tenant: alice.Tenant, Scope: string(ScopeOf(ScopeUser, alice.User)), Name: fmt.Sprint("S", i), Sealed: []byte("x")}
		if err := h.store.PutSecret(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := h.Put(t.Context(), alice, "", "MORE", "value-of-alice", false); !errors.Is(err, sandbox.QuotaExceeded) {
		t.Errorf("one more: %v", err)
	}
	if _, made, err := h.Put(t.Context(), alice, "", "S1", "value-of-alice", false); err != nil || made {
		t.Errorf("another value of one: %v", err)
	}
	h.put(t, bob, "", "HIS", "value-of-bob", false)
	h.put(t, admin, ScopeTenant, "SHARED", "value-of-tenant", false)
}

func TestList(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.env["FROM_ENV"], h.env["ALSO_ENV"] = "value-of-env-1", "value-of-env-2"
	h.put(t, admin, ScopeTenant, "SHARED", "value-of-tenant", true)
	h.put(t, admin, ScopeTenant, "HIDDEN", "value-of-admins", false)
	h.put(t, alice, "", "MINE", "value-of-alice", false)
	h.put(t, bob, "", "MINE", "value-of-bob", false)
	h.put(t, other, ScopeTenant, "THEIRS", "value-of-other", true)
	for _, c := range []struct {
		who  sandbox.Caller
		want string
	}{
		{alice, "ALSO_ENV tenant, MINE user/alice, SHARED tenant"},
		{admin, "ALSO_ENV tenant, FROM_ENV tenant, HIDDEN tenant, SHARED tenant"},
		{other, "ALSO_ENV tenant, FROM_ENV tenant, THEIRS tenant"},
	} {
		list, err := h.List(t.Context(), c.who)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, i := range list {
			got = append(got, i.Name+" "+i.Scope)
			if i.Source == "stored" && (i.ChangedBy == "" || i.ChangedAt.IsZero()) {
				t.Errorf("%+v", i)
			}
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s sees %s, want %s", c.who.User, strings.Join(got, ", "), c.want)
		}
		if strings.Contains(fmt.Sprintf("%+v", list), "value-of") {
			t.Errorf("a value is listed: %+v", list)
		}
	}
	if _, err := h.Get(t.Context(), alice, "HIDDEN"); !errors.Is(err, sandbox.NotFound) {
		t.Error(err)
	}
}

func TestForExec(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.env["FROM_ENV"], h.env["ALSO_ENV"] = "value-of-env-1", "value-of-env-2"
	h.put(t, admin, ScopeTenant, "YES", "value-with-exec", true)
	h.put(t, admin, ScopeTenant, "NO", "value-without", false)
	h.put(t, admin, "skill/pdf", "PDF_KEY", "value-of-the-skill", false)
	a := at("acme", "alice", "")
	for name, want := range map[string]sandbox.Kind{"YES": "", "ALSO_ENV": "", "NO": sandbox.Forbidden, "FROM_ENV": sandbox.Forbidden, "NONE": sandbox.NotFound, "PDF_KEY": sandbox.NotFound} {
		v, err := h.ForExec(t.Context(), a, []string{name})
		if sandbox.KindOf(err) != want || err != nil && !strings.Contains(err.Error(), name) || err == nil && v[name] == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	a.Skill = &sandbox.Skill{Name: "pdf", Category: sandbox.CategoryPublic, Digest: digestOf("1")}
	if v, err := h.ForExec(t.Context(), a, []string{"PDF_KEY", "YES"}); err != nil || v["PDF_KEY"] != "value-of-the-skill" {
		t.Error(v, err)
	}
}

func digestOf(digit string) string { return "sha256:" + strings.Repeat(digit, 64) }

// TestSecretOfASkill: a secret for the name of a skill is for the public one, which the operator provides. Another
// skill of that name, which any user can make, gets it only when the administrator has named its files.
func TestSecretOfASkill(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.put(t, admin, "skill/pdf", "PDF_KEY", "value-of-the-public", false)
	a := at("acme", "alice", "")
	get := func(category, digest string) string {
		a.Skill = &sandbox.Skill{Name: "pdf", Category: category, Digest: digest}
		v, err := h.ForExec(t.Context(), a, []string{"PDF_KEY"})
		if err != nil {
			if sandbox.KindOf(err) != sandbox.NotFound || digest != "" && !strings.Contains(err.Error(), "skill/pdf@"+digest) {
				t.Errorf("%s %s: %v", category, digest, err)
			}
			return ""
		}
		return v["PDF_KEY"]
	}
	others := []string{sandbox.CategoryCustom, sandbox.CategoryVirtual, sandbox.PluginCategory + "office", ""}
	for _, category := range others {
		if v := get(category, digestOf("1")); v != "" {
			t.Errorf("a skill of the category %q has the secret of the public one", category)
		}
	}
	if v := get(sandbox.CategoryPublic, digestOf("1")); v != "value-of-the-public" {
		t.Errorf("the public skill has %q", v)
	}
	h.put(t, admin, Scope("skill/pdf@"+digestOf("2")), "PDF_KEY", "value-of-these-files", false)
	for _, category := range append(others, sandbox.CategoryPublic) {
		if v := get(category, digestOf("2")); v != "value-of-these-files" {
			t.Errorf("the files that are named have %q as %q", v, category)
		}
	}
	for _, category := range others {
		if get(category, digestOf("3")) != "" || get(category, "") != "" {
			t.Errorf("other files of the category %q have it", category)
		}
	}
	for _, bad := range []string{"pdf@", "pdf@sha256:12", "pdf@latest", "@" + digestOf("1"), "pdf@x@" + digestOf("1")} {
		_, _, err := h.Put(t.Context(), admin, Scope("skill/"+bad), "PDF_KEY", "value-of-nothing", false)
		if sandbox.KindOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), "skill/NAME@sha256:DIGEST") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// The data folder never has a value, and what it has is of no use anywhere else in it.
func TestAtRest(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.put(t, alice, "", "TOKEN", "value-of-alice", false)
	h.put(t, bob, "", "TOKEN", "value-of-bob", false)
	if text := h.files(t); strings.Contains(text, "value-of") || !strings.Contains(text, "TOKEN") {
		t.Error(text)
	}
	h.close()
	h.open(t)
	h.want(t, at("acme", "alice", ""), "TOKEN", "value-of-alice")

	mine, err := h.store.SecretsNamed(t.Context(), "acme", "TOKEN", []string{"user/alice", "user/bob"})
	if err != nil || len(mine) != 2 {
		t.Fatal(mine, err)
	}
	mine[1].Sealed = mine[0].Sealed
	if err := h.store.PutSecret(t.Context(), mine[1]); err != nil {
		t.Fatal(err)
	}
	if v, err := h.ForServer(t.Context(), at("acme", "bob", ""), "TOKEN"); v != "" || !errors.Is(err, sandbox.Unavailable) || !strings.Contains(err.Error(), "TOKEN") {
		t.Errorf("bob got alice's: %q, %v", v, err)
	}
}

func TestKeyFile(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	data, keys := filepath.Join(root, "data"), filepath.Join(root, "keys")
	if err := errors.Join(os.Mkdir(data, 0o711), os.Mkdir(keys, 0o700), os.Symlink(data, filepath.Join(root, "link")), os.Symlink(filepath.Join(data, "k"), filepath.Join(keys, "k"))); err != nil {
		t.Fatal(err)
	}
	inside := filepath.Join(data, "k")
	if err := os.WriteFile(inside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{inside, filepath.Join(data, "a", "k"), filepath.Join(root, "link", "new"), filepath.Join(keys, "k"), filepath.Join(root, "keys", "..", "data", "x")} {
		if _, err := OpenKeys(path, data); err == nil || !strings.Contains(err.Error(), "data folder") {
			t.Errorf("%s: %v", path, err)
		}
	}
	good := filepath.Join(keys, "secrets.key")
	if _, err := OpenKeys(good, data); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(good); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o666} {
		if err := os.Chmod(good, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenKeys(good, data); err == nil || !strings.Contains(err.Error(), "others than the server can read it") {
			t.Errorf("%o: %v", mode, err)
		}
	}
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"": "AGE-SECRET-KEY", "# nothing\n": "AGE-SECRET-KEY", "AGE-SECRET-KEY-1BROKEN\n": "line 1", "\n" + id.String() + "\nx\n": "line 3"} {
		if err := errors.Join(os.WriteFile(good, []byte(text), 0o600), os.Chmod(good, 0o600)); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenKeys(good, data); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), id.String()) || strings.Contains(err.Error(), "BROKEN") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A rotation leaves one key, a new one, which opens everything; the old one opens nothing any more.
func TestRotate(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for i := range 5 {
		h.put(t, admin, ScopeTenant, fmt.Sprint("N", i), fmt.Sprint("value-number-", i), false)
	}
	h.put(t, other, ScopeTenant, "N0", "value-of-other", false)
	sealed, err := h.keys.Seal("login", []byte("token"))
	if err != nil {
		t.Fatal(err)
	}
	h.AlsoRenew(func(context.Context) (int, error) {
		out, changed, err := h.keys.Renew("login", sealed)
		if !changed {
			return 0, err
		}
		sealed = out
		return 1, err
	})
	before, err := os.ReadFile(h.keyFile)
	if err != nil {
		t.Fatal(err)
	}
	done, err := h.Rotate(t.Context())
	if err != nil || done.Renewed != 7 {
		t.Fatal(done, err)
	}
	after, err := os.ReadFile(h.keyFile)
	if err != nil || strings.Count(string(after), "AGE-SECRET-KEY") != 1 || string(after) == string(before) {
		t.Error("the key file is not as it should be", err)
	}
	if text, err := h.keys.Open("login", sealed); err != nil || string(text) != "token" {
		t.Error(err)
	}
	h.close()
	h.open(t)
	h.want(t, at("acme", "", ""), "N3", "value-number-3")
	h.want(t, at("other", "", ""), "N0", "value-of-other")
	if err := os.WriteFile(h.keyFile, before, 0o600); err != nil {
		t.Fatal(err)
	}
	if v, err := h.ForServer(t.Context(), at("acme", "", ""), "N3"); v != "" || !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("with the old key: %q, %v", v, err)
	}
}

// crashing stands for a state that is gone after so many writes.
type crashing struct {
	*store.Store
	left int
}

var errCrash = errors.New("crash")

func (c *crashing) ResealSecret(ctx context.Context, was, now store.SecretRecord) (bool, error) {
	if c.left--; c.left < 0 {
		return false, errCrash
	}
	return c.Store.ResealSecret(ctx, was, now)
}

// Wherever a rotation is cut off, everything can be read, and the next one finishes it.
func TestRotationIsCutOff(t *testing.T) {
	t.Parallel()
	const n = 4
	for writes := range n + 1 {
		h := newHouse(t)
		for i := range n {
			h.put(t, admin, ScopeTenant, fmt.Sprint("N", i), fmt.Sprint("value-number-", i), false)
		}
		h.o.Store = &crashing{h.store, writes}
		ctx, cancel := context.WithCancel(t.Context())
		if writes == n { // after the first pass
			h.AlsoRenew(func(context.Context) (int, error) { cancel(); return 0, nil })
		}
		_, err := h.Rotate(ctx)
		cancel()
		if err == nil {
			t.Fatalf("after %d writes: no error", writes)
		}
		h.close()
		h.open(t)
		for i := range n {
			h.want(t, at("acme", "", ""), fmt.Sprint("N", i), fmt.Sprint("value-number-", i))
		}
		if done, err := h.Rotate(t.Context()); err != nil || done.Renewed != n {
			t.Errorf("after %d writes, again: %+v, %v", writes, done, err)
		}
		text, err := os.ReadFile(h.keyFile)
		if err != nil || strings.Count(string(text), "AGE-SECRET-KEY") != 1 {
			t.Errorf("after %d writes: old keys are left, %v", writes, err)
		}
	}
}

// A secret that is set while a rotation goes on keeps its new value.
func TestSetWhileRotating(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.put(t, admin, ScopeTenant, "TOKEN", "the-old-value", false)
	read, err := h.store.Secrets(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	h.put(t, admin, ScopeTenant, "TOKEN", "the-new-value", false)
	late := read[0]
	late.Sealed = slices.Clone(late.Sealed)
	late.Sealed[0] ^= 1
	if done, err := h.store.ResealSecret(t.Context(), read[0], late); done || err != nil {
		t.Errorf("the old value came back: %v, %v", done, err)
	}
	h.want(t, at("acme", "", ""), "TOKEN", "the-new-value")
}

// What no key opens keeps the old keys where they are.
func TestRotationOfWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.put(t, admin, ScopeTenant, "GOOD", "long-enough", false)
	bad := store.SecretRecord{Tenant: "acme", Scope: "tenant", Name: "BAD", Sealed: []byte("not age")}
	if err := h.store.PutSecret(t.Context(), bad); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Rotate(t.Context()); !errors.Is(err, sandbox.Conflict) || !strings.Contains(err.Error(), `"BAD"`) {
		t.Fatal(err)
	}
	h.want(t, at("acme", "", ""), "GOOD", "long-enough")
	if err := h.Delete(t.Context(), admin, ScopeTenant, "BAD"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Rotate(t.Context()); err != nil {
		t.Error(err)
	}
}
