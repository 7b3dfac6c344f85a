package auth

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// A derived key is good for one thread of one user and for nothing else. Its secret follows from its name
// and the secret of its parent key. So the holder of the parent key can compute it again, and the server
// keeps only its hash. It works as long as that key does.

// maxDerived bounds the derived keys of a tenant, and maxOfUser those of one user: no user takes all places of the
// others.
const (
	maxDerived = 10_000
	maxOfUser  = maxDerived * 3 / 4
)

// Derived is a derived key with its secret.
type Derived struct {
	Name   string
	User   string
	Thread string
	Secret string
}

// Derive makes the key of a name for a thread of the user for whom cred acts, or returns the existing one.
// Errors of cred are those of Authenticate. Forbidden: cred is no key, is itself derived, or is not good for the thread; Conflict: the name
// has another thread or user; QuotaExceeded: the tenant has 10,000, or the user 7,500.
func (k *Keys) Derive(ctx context.Context, cred Credential, name, thread string) (Derived, error) {
	c, err := k.deriver(ctx, cred)
	if err != nil {
		return Derived{}, err
	}
	if err := sandbox.CheckThreadID(thread); err != nil {
		return Derived{}, err
	}
	if !c.MayUse(thread) {
		return Derived{}, sandbox.Errorf(sandbox.Forbidden, "this key is not for the thread %s", thread)
	}
	have, err := k.Derived(ctx, cred, name)
	switch {
	case err == nil && (have.Thread != thread || have.User != c.User):
		return Derived{}, sandbox.Errorf(sandbox.Conflict, "%.140q is the thread %s of the user %s", name, have.Thread, have.User)
	case err == nil:
		return have, nil
	case !errors.Is(err, sandbox.NotFound):
		return Derived{}, err
	}
	d := Derived{Name: name, User: c.User, Thread: thread, Secret: derive(cred.Secret, name)}
	key := Key{Name: name, Tenant: c.Tenant, User: c.User, Role: sandbox.RoleAgent, Capabilities: c.Capabilities, Threads: []string{thread}}
	now := k.o.Now().UTC()
	if err := key.check(now); err != nil {
		return Derived{}, err
	}
	all, err := k.store.Keys(ctx, c.Tenant)
	if err != nil {
		return Derived{}, err
	}
	if n := countDerived(all, ""); n >= maxDerived {
		return Derived{}, sandbox.Errorf(sandbox.QuotaExceeded, "the tenant has %d derived keys: end some of what they are for", n)
	}
	if n := countDerived(all, c.User); n >= maxOfUser {
		return Derived{}, sandbox.Errorf(sandbox.QuotaExceeded, "the user has %d derived keys: end some of what they are for", n)
	}
	key.CreatedAt, key.Hash, key.Parent = now, hashOf(d.Secret), hashOf(cred.Secret)
	key.ID = derivedID(key.Hash)
	err = k.store.PutKey(ctx, store.KeyRecord(key))
	k.forget("", key.Hash)
	return d, err
}

// Derived returns a key that was derived from cred, for any user; NotFound when there is none of that name.
func (k *Keys) Derived(ctx context.Context, cred Credential, name string) (Derived, error) {
	if _, err := k.deriver(ctx, Credential{Secret: cred.Secret, Source: cred.Source}); err != nil {
		return Derived{}, err
	}
	secret := derive(cred.Secret, name)
	rec, err := k.store.KeyByHash(ctx, hashOf(secret))
	if err != nil {
		return Derived{}, err
	}
	return derivedOf(rec, secret), nil
}

// AllDerived returns all keys that were derived from cred whose names begin with prefix, oldest first.
func (k *Keys) AllDerived(ctx context.Context, cred Credential, prefix string) ([]Derived, error) {
	c, err := k.deriver(ctx, Credential{Secret: cred.Secret, Source: cred.Source})
	if err != nil {
		return nil, err
	}
	recs, err := k.store.Keys(ctx, c.Tenant)
	if err != nil {
		return nil, err
	}
	parent, found := hashOf(cred.Secret), []Derived{}
	for _, r := range recs {
		if r.Parent == parent && strings.HasPrefix(r.Name, prefix) && len(r.Threads) == 1 {
			found = append(found, derivedOf(r, derive(cred.Secret, r.Name)))
		}
	}
	return found, nil
}

// ForgetDerived ends a key that was derived from cred; NotFound when there is none of that name.
func (k *Keys) ForgetDerived(ctx context.Context, cred Credential, name string) error {
	c, err := k.deriver(ctx, Credential{Secret: cred.Secret, Source: cred.Source})
	if err != nil {
		return err
	}
	id := derivedID(hashOf(derive(cred.Secret, name)))
	err = k.store.DeleteKey(ctx, c.Tenant, id)
	k.forget(id, "") // also after an error, which leaves open whether it is gone
	return err
}

// ThreadOf returns the thread of a derived key that is valid now, and its caller. Forbidden: it is no derived key; others as Authenticate.
func (k *Keys) ThreadOf(ctx context.Context, cred Credential) (thread string, c sandbox.Caller, err error) {
	if c, err = k.Authenticate(ctx, cred); err != nil {
		return "", c, err
	}
	rec, err := k.find(ctx, cred)
	if err != nil {
		return "", c, err
	}
	if rec.Parent == "" || len(rec.Threads) != 1 {
		return "", c, sandbox.Errorf(sandbox.Forbidden, "the key is not one of a sandbox")
	}
	return rec.Threads[0], c, nil
}

// deriver says who has derived keys: who sends a key that is not itself derived.
func (k *Keys) deriver(ctx context.Context, cred Credential) (sandbox.Caller, error) {
	c, err := k.Authenticate(ctx, cred)
	if err != nil {
		return sandbox.Caller{}, err
	}
	if c.Method != sandbox.ByKey {
		return sandbox.Caller{}, sandbox.Errorf(sandbox.Forbidden, "this takes a key: a token ends too soon")
	}
	rec, err := k.find(ctx, cred)
	if err == nil && rec.Parent != "" {
		err = sandbox.Errorf(sandbox.Forbidden, "this key belongs to a sandbox: use the key that it was made with")
	}
	return c, err
}

// parent returns the key that another was derived from. Unauthorized: it is none any more.
func (k *Keys) parent(ctx context.Context, rec store.KeyRecord) (store.KeyRecord, error) {
	k.mu.Lock()
	now, changed := k.o.Now(), k.changed
	p, ok := k.known.get(rec.Parent, now)
	if ok {
		k.used[p.ID] = use{p.Tenant, now}
	}
	k.mu.Unlock()
	if !ok {
		var err error
		p, err = k.store.KeyByHash(ctx, rec.Parent)
		if errors.Is(err, sandbox.NotFound) {
			return p, sandbox.Errorf(sandbox.Unauthorized, "the key that this one was made with was revoked")
		}
		if err != nil {
			return p, err
		}
		k.mu.Lock()
		if changed == k.changed {
			k.known.put(rec.Parent, p, now.Add(knownFor))
		}
		k.mu.Unlock()
	}
	switch {
	case p.ExpiresAt != nil && !now.Before(*p.ExpiresAt):
		return p, sandbox.Errorf(sandbox.Unauthorized, "the key that this one was made with has expired")
	case p.Tenant != rec.Tenant || p.User != rec.User && !p.ActFor:
		return p, sandbox.Errorf(sandbox.Unauthorized, "the key that this one was made with does not act for its user")
	}
	return p, nil
}

// forgetAllDerived takes away what was derived from a key that is revoked. None of it works any more, so that what cannot be taken away
// now is only listed.
func (k *Keys) forgetAllDerived(ctx context.Context, tenant string, all []store.KeyRecord, id string) {
	for _, p := range all {
		if p.ID != id {
			continue
		}
		for _, r := range all {
			if r.Parent == p.Hash {
				_ = k.store.DeleteKey(ctx, tenant, r.ID)
				k.forget(r.ID, "")
			}
		}
	}
}

// countDerived counts derived keys: those of a user, or all when user is "".
func countDerived(all []store.KeyRecord, user string) (n int) {
	for _, r := range all {
		if r.Parent != "" && (user == "" || r.User == user) {
			n++
		}
	}
	return n
}

func derivedOf(r store.KeyRecord, secret string) Derived {
	d := Derived{Name: r.Name, User: r.User, Secret: secret}
	if len(r.Threads) == 1 {
		d.Thread = r.Threads[0]
	}
	return d
}

// derive makes the secret of a derived key, which only a holder of the other one can guess.
func derive(secret, name string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("skerry derived key\x00" + name))
	return secretPrefix + hex.EncodeToString(mac.Sum(nil))
}

func derivedID(hash string) string { return "key_" + hash[:16] }
