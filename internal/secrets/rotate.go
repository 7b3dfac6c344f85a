package secrets

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Rotation is what a rotation did.
type Rotation struct {
	Renewed int `json:"renewed" doc:"Values that were encrypted anew"`
}

// settle is how long after its first pass a rotation looks again. By then, a write of another server that
// had begun with the old key is done. A call of the store lasts two seconds at most.
const settle = 3 * time.Second

// Rotate makes a new key, encrypts everything anew, and takes the old keys away. At every moment the key file
// opens all that there is: a rotation that was cut off is finished by the next one. Only one runs at a time:
// Conflict.
func (s *Service) Rotate(ctx context.Context) (Rotation, error) {
	lock := s.o.Keys.path + ".lock"
	f, err := os.OpenFile(lock, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return Rotation{}, errKeys(err)
	}
	_ = f.Close() // the lock opens it again
	busy, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	unlock, err := lockedfile.Lock(busy, lock)
	if errors.Is(err, lockedfile.ErrBusy) {
		return Rotation{}, sandbox.Errorf(sandbox.Conflict, "another rotation goes on")
	}
	if err != nil {
		return Rotation{}, errKeys(err)
	}
	defer unlock()
	if err := s.o.Keys.begin(ctx); err != nil {
		return Rotation{}, errKeys(err)
	}
	done := Rotation{}
	for pass := range 2 {
		if pass > 0 {
			select {
			case <-ctx.Done():
				return done, ctx.Err()
			case <-time.After(settle):
			}
		}
		n, err := s.renewAll(ctx)
		done.Renewed += n
		if err != nil {
			return done, err
		}
	}
	if err := s.o.Keys.end(ctx); err != nil {
		return done, errKeys(err)
	}
	return done, nil
}

// renewAll seals everything for the newest key. What cannot be opened by any key stays as it is and is an
// error: the old keys must not go.
func (s *Service) renewAll(ctx context.Context) (changed int, err error) {
	tenants, err := s.o.Store.SecretTenants(ctx)
	if err != nil {
		return 0, err
	}
	for _, tenant := range tenants {
		n, err := s.renewTenant(ctx, tenant)
		changed += n
		if err != nil {
			return changed, err
		}
	}
	s.others.Lock()
	others := slices.Clone(s.o.Others)
	s.others.Unlock()
	for _, renew := range others {
		n, err := renew(ctx)
		changed += n
		if err != nil {
			return changed, err
		}
	}
	return changed, nil
}

func (s *Service) renewTenant(ctx context.Context, tenant string) (changed int, err error) {
	all, err := s.o.Store.Secrets(ctx, tenant)
	if err != nil {
		return 0, err
	}
	for _, r := range all {
		sealed, renewed, err := s.o.Keys.Renew(purposeOf(r.Tenant, r.Scope, r.Name), r.Sealed)
		if err != nil {
			return changed, sandbox.Wrap(sandbox.Conflict, err, "the secret %q of the scope %s cannot be read (%s): set it anew or delete it, then rotate again", r.Name, r.Scope, detailOf(err))
		}
		if !renewed {
			continue
		}
		now := r
		now.Sealed = sealed
		done, err := s.o.Store.ResealSecret(ctx, r, now)
		if err != nil {
			return changed, err
		}
		if done { // else another writer has changed it meanwhile
			changed++
		}
	}
	return changed, nil
}
