package cli

import (
	"cmp"
	"context"
	"errors"
	"os"

	"github.com/skerry-sandbox/skerry/internal/api/auth"
	"github.com/skerry-sandbox/skerry/internal/app"
	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// storeKey makes a key in the state of a server that does not run.
func storeKey(ctx context.Context, k auth.Key, data, redis string) (string, error) {
	k.Tenant = cmp.Or(k.Tenant, "default")
	cfg, err := config.Load("", os.LookupEnv)
	if err != nil {
		return "", err
	}
	cfg.Redis = redis
	if data != "" {
		cfg.Data = data
	}
	if redis == "" {
		if err := app.MakeData(cfg.Data); err != nil {
			return "", err
		}
		lock, err := app.LockData(cfg.Data, false)
		if errors.Is(err, app.ErrDataInUse) {
			return "", errors.New("a server runs on this data folder: leave out --data and ask it (--server, --api-key)")
		}
		if err != nil {
			return "", err
		}
		defer lock.Unlock() //nolint:errcheck // the command ends, and with it the lock
	}
	s, err := app.OpenStore(ctx, cfg, nil, newLog("warn"))
	if err != nil {
		return "", err
	}
	defer s.Close()
	administrator := sandbox.Caller{Owner: sandbox.Owner{Tenant: k.Tenant, User: k.User}, Role: sandbox.RoleAdmin}
	_, secret, err := auth.New(s, auth.Options{}).CreateKey(ctx, administrator, k)
	return secret, err
}
