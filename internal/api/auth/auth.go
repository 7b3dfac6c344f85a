package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// A secret is "sk_" and 64 hex digits. Its 256 random bits cannot be guessed from their hash however
// fast that is, so a plain sha256 is kept; a slow hash protects secrets that people choose.
const (
	secretPrefix = "sk_"
	secretBytes  = 32
)

const (
	// knownFor is how long a key that was found is taken as good without asking the store: a key
	// that is revoked through another server works no longer than that.
	knownFor = 5 * time.Second
	// unknownFor is the same for a secret that is no key: a client with a wrong secret does not cost a round
	// trip each time. A key made through another server works after that.
	unknownFor = time.Second
	// writeUses is how often it is written down when keys were used: never while a caller waits for it.
	writeUses = 30 * time.Second
	// cacheSize bounds each of the two caches, in secrets.
	cacheSize = 4096
)

// keyStore is what Keys needs of *store.Store.
type keyStore interface {
	PutKey(ctx context.Context, k store.KeyRecord) error
	KeyByHash(ctx context.Context, hash string) (store.KeyRecord, error)
	HasKeys(ctx context.Context) (bool, error)
	Keys(ctx context.Context, tenant string) ([]store.KeyRecord, error)
	DeleteKey(ctx context.Context, tenant, id string) error
	WatchKeys(ctx context.Context, changed func(id string))
	KeyUsed(ctx context.Context, tenant, id string, at time.Time) error
}

// Options of New.
type Options struct {
	// Tokens checks credentials that are signed tokens; nil: none is.
	Tokens tokens
	// Now replaces time.Now in tests.
	Now func() time.Time
}

// tokens is what Keys needs of *oidc.Issuers.
type tokens interface {
	Authenticate(ctx context.Context, token string) (sandbox.Caller, error)
}

// Keys checks, makes and revokes bearer keys. It is safe for concurrent use.
type Keys struct {
	store keyStore
	o     Options

	mu      sync.Mutex
	changed uint64 // counts changes of keys in this process
	known   *cache[store.KeyRecord]
	unknown *cache[struct{}]
	slow    *throttle
	used    map[string]use // by key id; not written down yet
}

// use is when a key was used last.
type use struct {
	tenant string
	at     time.Time
}

// Credential is what a request presents.
type Credential struct {
	Secret     string
	OnBehalfOf string // the header, or ""
	Source     string // address of the peer
}

// New makes Keys over a store (*store.Store).
func New(s keyStore, o Options) *Keys {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Keys{store: s, o: o, known: newCache[store.KeyRecord](cacheSize), unknown: newCache[struct{}](cacheSize), slow: newThrottle(), used: map[string]use{}}
}

// Authenticate says who sends a credential. OnBehalfOf is the user of the same tenant for whom a key with that
// right acts, with that user's rights and never an administrator's. Unauthorized: no secret, or none that is
// valid now; Forbidden: the key may not act for others; Invalid: OnBehalfOf is no user name; Unavailable: the
// store does not answer; *TooMany: the credential was not looked at.
func (k *Keys) Authenticate(ctx context.Context, cred Credential) (sandbox.Caller, error) {
	if cred.Secret == "" {
		return sandbox.Caller{}, sandbox.Errorf(sandbox.Unauthorized, "no credential: send Authorization: Bearer <key>, or X-API-Key")
	}
	c, mayActFor, err := k.caller(ctx, cred)
	if err != nil {
		return sandbox.Caller{}, k.refuse(cred, err)
	}
	c.MayActFor = mayActFor
	return actFor(c, mayActFor, cred.OnBehalfOf)
}

// refuse notes that a credential was wrong, and answers with less when there were too many of them.
func (k *Keys) refuse(cred Credential, err error) error {
	if sandbox.KindOf(err) != sandbox.Unauthorized {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now, prefix := k.o.Now(), prefixOf(cred.Secret)
	if wait := k.slow.wait(cred.Source, prefix, now); wait > 0 {
		return &TooMany{Wait: wait}
	}
	k.slow.wrong(cred.Source, prefix, now)
	return err
}

// caller says whose a credential is, and whether it may act for others.
func (k *Keys) caller(ctx context.Context, cred Credential) (c sandbox.Caller, mayActFor bool, err error) {
	if k.o.Tokens != nil && looksLikeToken(cred.Secret) {
		c, err = k.o.Tokens.Authenticate(ctx, cred.Secret)
		if err == nil && cred.OnBehalfOf != "" {
			err = sandbox.Errorf(sandbox.Forbidden, "a token acts for its own user only: leave out On-Behalf-Of, or use a key made with act_for")
		}
		return c, false, err
	}
	if !looksLikeSecret(cred.Secret) {
		return c, false, sandbox.Errorf(sandbox.Unauthorized, "the credential is not a key, which is %s and %d hex digits", secretPrefix, 2*secretBytes)
	}
	rec, err := k.find(ctx, cred)
	if err != nil {
		return c, false, err
	}
	if rec.ExpiresAt != nil && !k.o.Now().Before(*rec.ExpiresAt) {
		return c, false, sandbox.Errorf(sandbox.Unauthorized, "the key expired at %s", rec.ExpiresAt.UTC().Format(time.RFC3339))
	}
	key := keyOf(rec)
	c = sandbox.Caller{
		Owner: sandbox.Owner{Tenant: key.Tenant, User: key.User}, Role: key.Role, Capabilities: key.Capabilities, Threads: key.Threads,
		Actor: key.User, KeyID: key.ID, Method: sandbox.ByKey,
	}
	if rec.Parent != "" { // it acts, and is counted, as the key that it was derived from
		p, err := k.parent(ctx, rec)
		if err != nil {
			return sandbox.Caller{}, false, err
		}
		c.Actor, c.KeyID = p.User, p.ID
	}
	return c, key.ActFor, nil
}

// actFor returns the caller for whom c acts: a user of the same tenant, with at most the rights of a user.
func actFor(c sandbox.Caller, may bool, user string) (sandbox.Caller, error) {
	switch {
	case user == "":
		return c, nil
	case !may:
		return sandbox.Caller{}, sandbox.Errorf(sandbox.Forbidden, "this key may not act for others: leave out On-Behalf-Of, or use a key made with act_for")
	}
	if err := sandbox.CheckOwnerName("On-Behalf-Of", user); err != nil {
		return sandbox.Caller{}, err
	}
	c.User = user
	if c.Role == sandbox.RoleAdmin {
		c.Role = sandbox.RoleDeveloper
	}
	return c, nil
}

// find returns the key of a secret, from a cache or else from the store. It finds keys by their hash. So it
// never compares two secrets, and the time of an answer does not reveal how much of a secret is right.
func (k *Keys) find(ctx context.Context, cred Credential) (store.KeyRecord, error) {
	hash := hashOf(cred.Secret)
	unknown := sandbox.Errorf(sandbox.Unauthorized, "the key is not known, or was revoked")
	k.mu.Lock()
	now, changed := k.o.Now(), k.changed
	if rec, ok := k.known.get(hash, now); ok {
		k.used[rec.ID] = use{rec.Tenant, now}
		k.mu.Unlock()
		return rec, nil
	}
	_, no := k.unknown.get(hash, now)
	wait := time.Duration(0)
	if _, good := k.slow.good.get(hash, now); !good {
		wait = k.slow.wait(cred.Source, prefixOf(cred.Secret), now)
	}
	k.mu.Unlock()
	switch {
	case wait > 0:
		return store.KeyRecord{}, &TooMany{Wait: wait}
	case no:
		return store.KeyRecord{}, unknown
	}
	rec, err := k.store.KeyByHash(ctx, hash)
	k.mu.Lock()
	defer k.mu.Unlock()
	// An answer from before a change in this process may be outdated by now: it counts for this
	// call alone.
	fresh := changed == k.changed
	if err == nil {
		k.used[rec.ID] = use{rec.Tenant, now}
		k.slow.good.put(hash, struct{}{}, now.Add(goodFor))
	}
	switch {
	case err == nil && fresh:
		k.known.put(hash, rec, now.Add(knownFor))
	case errors.Is(err, sandbox.NotFound):
		if fresh {
			k.unknown.put(hash, struct{}{}, now.Add(unknownFor))
		}
		return store.KeyRecord{}, unknown
	}
	return rec, err
}

// CreateKey makes a key of the caller's tenant. Of key, ID, CreatedAt and Hash are
// not asked for; without a role it is an agent's, and the first one of all an administrator's. Tenant is the caller's or "". The secret is given this once. Forbidden: the caller is
// no administrator of that tenant; Invalid: a bad name or time; QuotaExceeded: the tenant has 10,000.
func (k *Keys) CreateKey(ctx context.Context, c sandbox.Caller, key Key) (made Key, secret string, err error) {
	if err := administrator(c); err != nil {
		return Key{}, "", err
	}
	if key.Tenant == "" {
		key.Tenant = c.Tenant
	}
	if key.Tenant != c.Tenant {
		return Key{}, "", sandbox.Errorf(sandbox.Forbidden, "an administrator makes keys of its own tenant %q only", c.Tenant)
	}
	if key.Role == "" && !key.Admin && k.o.Tokens == nil {
		// From the first key on the server wants one from every caller: an agent's would lock out its owner.
		has, err := k.store.HasKeys(ctx)
		if err != nil {
			return Key{}, "", err
		}
		key.Admin = !has
	}
	now := k.o.Now().UTC()
	if err := key.check(now); err != nil {
		return Key{}, "", err
	}
	have, err := k.store.Keys(ctx, key.Tenant)
	if err != nil {
		return Key{}, "", err
	}
	if n := len(have) - countDerived(have, ""); n >= maxKeys {
		return Key{}, "", sandbox.Errorf(sandbox.QuotaExceeded, "the tenant has %d keys: revoke some", n)
	}
	secret = secretPrefix + randomHex(secretBytes)
	key.ID, key.CreatedAt, key.Hash = "key_"+randomHex(8), now, hashOf(secret)
	err = k.store.PutKey(ctx, store.KeyRecord(key))
	k.forget("", key.Hash)
	k.mu.Lock()
	k.slow.good.put(key.Hash, struct{}{}, now.Add(goodFor))
	k.mu.Unlock()
	if err != nil {
		return Key{}, "", err
	}
	return key, secret, nil
}

// CreateFirstKey stores a key with the given secret, as long as there is no key at all. The key is for an
// administrator of a tenant who may act for others. Servers that do so at the same moment store the same
// key. made is false when there are keys. Invalid: no secret of a key.
func (k *Keys) CreateFirstKey(ctx context.Context, o sandbox.Owner, secret string) (made Key, ok bool, err error) {
	if !looksLikeSecret(secret) {
		return Key{}, false, sandbox.Errorf(sandbox.Invalid, "the first key is not %s and %d hex digits in lower case; openssl rand -hex %d makes them", secretPrefix, 2*secretBytes, secretBytes)
	}
	if has, err := k.store.HasKeys(ctx); err != nil || has {
		return Key{}, false, err
	}
	key := Key{Name: "first key", Tenant: o.Tenant, User: o.User, Role: sandbox.RoleAdmin, ActFor: true}
	now := k.o.Now().UTC()
	if err := key.check(now); err != nil {
		return Key{}, false, err
	}
	key.CreatedAt, key.Hash = now, hashOf(secret)
	key.ID = "key_" + key.Hash[:16]
	err = k.store.PutKey(ctx, store.KeyRecord(key))
	k.forget("", key.Hash)
	return key, err == nil, err
}

// ListKeys lists the keys of the caller's tenant, oldest first, expired ones too. Forbidden: the
// caller is no administrator.
func (k *Keys) ListKeys(ctx context.Context, c sandbox.Caller) ([]Key, error) {
	if err := administrator(c); err != nil {
		return nil, err
	}
	recs, err := k.store.Keys(ctx, c.Tenant)
	if err != nil {
		return nil, err
	}
	keys := make([]Key, len(recs))
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, r := range recs {
		keys[i] = keyOf(r)
		if u, ok := k.used[r.ID]; ok { // not written down yet
			at := u.at.UTC().Truncate(time.Second)
			keys[i].LastUsedAt = &at
		}
	}
	return keys, nil
}

// RevokeKey ends a key of the caller's tenant. It takes effect at once on this server and on others that
// hear of it (see Run), and within 5 s on the rest. Forbidden: the caller is no administrator; NotFound: the
// tenant has no such key.
func (k *Keys) RevokeKey(ctx context.Context, c sandbox.Caller, id string) error {
	if err := administrator(c); err != nil {
		return err
	}
	all, err := k.store.Keys(ctx, c.Tenant)
	if err != nil {
		return err
	}
	err = k.store.DeleteKey(ctx, c.Tenant, id)
	// Also after an error, which leaves open whether the key is gone: then it is asked for again.
	k.forget(id, "")
	if err == nil {
		k.forgetAllDerived(ctx, c.Tenant, all, id)
	}
	if errors.Is(err, sandbox.NotFound) {
		return sandbox.Errorf(sandbox.NotFound, "there is no key %.64q", id)
	}
	return err
}

// forget takes a key out of the caches, by its id or its hash.
func (k *Keys) forget(id, hash string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.changed++
	k.unknown.remove(hash)
	k.known.removeIf(func(r store.KeyRecord) bool { return r.ID == id || r.Hash == hash })
	delete(k.used, id)
}

// forgetAll empties the caches: some change may have been missed.
func (k *Keys) forgetAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.changed++
	k.known, k.unknown = newCache[store.KeyRecord](cacheSize), newCache[struct{}](cacheSize)
}

// Run follows keys that other servers make and revoke, and records when keys were used, until ctx ends. It
// calls heard after each change on any server; heard may be nil.
func (k *Keys) Run(ctx context.Context, heard func()) {
	var watching sync.WaitGroup
	watching.Go(func() {
		k.store.WatchKeys(ctx, func(id string) {
			if id == "" {
				k.forgetAll()
			} else {
				k.invalidate(id)
			}
			if heard != nil {
				heard()
			}
		})
	})
	defer watching.Wait()
	tick := time.NewTicker(writeUses)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			k.writeUses(ctx)
		case <-ctx.Done():
			k.writeUses(context.WithoutCancel(ctx))
			return
		}
	}
}

// invalidate forgets a key that was changed. A new one may be among the secrets that were none.
func (k *Keys) invalidate(id string) {
	k.mu.Lock()
	k.unknown = newCache[struct{}](cacheSize)
	k.mu.Unlock()
	k.forget(id, "")
}

// writeUses writes down when keys were used. What cannot be written is tried again the next time, unless the key
// was used again by then.
func (k *Keys) writeUses(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, writeUses)
	defer cancel()
	k.mu.Lock()
	used := k.used
	k.used = map[string]use{}
	k.mu.Unlock()
	for id, u := range used {
		if ctx.Err() != nil || k.store.KeyUsed(ctx, u.tenant, id, u.at) != nil {
			k.mu.Lock()
			if _, newer := k.used[id]; !newer && len(k.used) < cacheSize {
				k.used[id] = u
			}
			k.mu.Unlock()
		}
	}
}

func administrator(c sandbox.Caller) error {
	if !c.Admin() {
		return sandbox.Errorf(sandbox.Forbidden, "keys are for administrators: use a key with the role admin")
	}
	return nil
}

func looksLikeSecret(s string) bool {
	digits, ok := strings.CutPrefix(s, secretPrefix)
	return ok && len(digits) == 2*secretBytes && strings.Trim(digits, "0123456789abcdef") == ""
}

// looksLikeToken tells a signed token: three parts, of which the first is a JSON object in base64.
func looksLikeToken(s string) bool {
	return strings.HasPrefix(s, "ey") && strings.Count(s, ".") == 2
}

func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
