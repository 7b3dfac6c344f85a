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
	// unknownFor is the same for a secret that is no key, so that a client with a wrong one does
	// not cost a round trip each time. A key made through another server works after that.
	unknownFor = time.Second
	// cacheSize bounds each of the two caches, in secrets.
	cacheSize = 4096
)

// keyStore is what Keys needs of *store.Store.
type keyStore interface {
	PutKey(ctx context.Context, k store.KeyRecord) error
	KeyByHash(ctx context.Context, hash string) (store.KeyRecord, error)
	Keys(ctx context.Context, tenant string) ([]store.KeyRecord, error)
	DeleteKey(ctx context.Context, tenant, id string) error
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
}

// New makes Keys over a store (*store.Store).
func New(s keyStore, o Options) *Keys {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Keys{store: s, o: o, known: newCache[store.KeyRecord](cacheSize), unknown: newCache[struct{}](cacheSize)}
}

// Authenticate says who sends a secret. onBehalfOf is the On-Behalf-Of header, or "": the user of the
// same tenant for whom a key with that right acts, with that user's rights and never an
// administrator's. Unauthorized: no secret, or none that is valid now; Forbidden: the key may not act
// for others; Invalid: onBehalfOf is no user name; Unavailable: the store does not answer.
func (k *Keys) Authenticate(ctx context.Context, secret, onBehalfOf string) (sandbox.Caller, error) {
	if secret == "" {
		return sandbox.Caller{}, sandbox.Errorf(sandbox.Unauthorized, "no credential: send Authorization: Bearer <key>, or X-API-Key")
	}
	if k.o.Tokens != nil && looksLikeToken(secret) {
		c, err := k.o.Tokens.Authenticate(ctx, secret)
		if err == nil && onBehalfOf != "" {
			return sandbox.Caller{}, sandbox.Errorf(sandbox.Forbidden, "a token acts for nobody but its user: leave out On-Behalf-Of, or use a key made with act_for")
		}
		return c, err
	}
	if !looksLikeSecret(secret) {
		return sandbox.Caller{}, sandbox.Errorf(sandbox.Unauthorized, "the credential is not a key, which is %s and %d hex digits", secretPrefix, 2*secretBytes)
	}
	rec, err := k.find(ctx, hashOf(secret))
	if err != nil {
		return sandbox.Caller{}, err
	}
	if rec.ExpiresAt != nil && !k.o.Now().Before(*rec.ExpiresAt) {
		return sandbox.Caller{}, sandbox.Errorf(sandbox.Unauthorized, "the key expired at %s", rec.ExpiresAt.UTC().Format(time.RFC3339))
	}
	key := keyOf(rec)
	c := sandbox.Caller{
		Owner: sandbox.Owner{Tenant: key.Tenant, User: key.User}, Role: key.Role, Capabilities: key.Capabilities, Threads: key.Threads,
		Actor: key.User, KeyID: key.ID, Method: sandbox.ByKey,
	}
	return actFor(c, key.ActFor, onBehalfOf)
}

// actFor makes a caller the one for whom it acts: a user of the same tenant, with what a user has at most.
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

// find gives the key with a hash: from a cache, else from the store.
func (k *Keys) find(ctx context.Context, hash string) (store.KeyRecord, error) {
	unknown := sandbox.Errorf(sandbox.Unauthorized, "the key is not known, or was revoked")
	k.mu.Lock()
	now, changed := k.o.Now(), k.changed
	if rec, ok := k.known.get(hash, now); ok {
		k.mu.Unlock()
		return rec, nil
	}
	_, no := k.unknown.get(hash, now)
	k.mu.Unlock()
	if no {
		return store.KeyRecord{}, unknown
	}
	rec, err := k.store.KeyByHash(ctx, hash)
	k.mu.Lock()
	defer k.mu.Unlock()
	// An answer from before a change in this process may be outdated by now: it counts for this
	// call alone.
	fresh := changed == k.changed
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
// not asked for, and without a role it is an agent's; Tenant is the caller's or "". The secret is given this once. Forbidden: the caller is
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
	now := k.o.Now().UTC()
	if err := key.check(now); err != nil {
		return Key{}, "", err
	}
	have, err := k.store.Keys(ctx, key.Tenant)
	if err != nil {
		return Key{}, "", err
	}
	if len(have) >= maxKeys {
		return Key{}, "", sandbox.Errorf(sandbox.QuotaExceeded, "the tenant has %d keys: revoke some", len(have))
	}
	secret = secretPrefix + randomHex(secretBytes)
	key.ID, key.CreatedAt, key.Hash = "key_"+randomHex(8), now, hashOf(secret)
	err = k.store.PutKey(ctx, store.KeyRecord(key))
	k.forget("", key.Hash)
	if err != nil {
		return Key{}, "", err
	}
	return key, secret, nil
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
	for i, r := range recs {
		keys[i] = keyOf(r)
	}
	return keys, nil
}

// RevokeKey ends a key of the caller's tenant: at once on this server, within 5 s on others.
// Forbidden: the caller is no administrator; NotFound: the tenant has no such key.
func (k *Keys) RevokeKey(ctx context.Context, c sandbox.Caller, id string) error {
	if err := administrator(c); err != nil {
		return err
	}
	err := k.store.DeleteKey(ctx, c.Tenant, id)
	// Also after an error, which leaves open whether the key is gone: then it is asked for again.
	k.forget(id, "")
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
