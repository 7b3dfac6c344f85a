//go:build !linux

package cli

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/api/auth"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
)

func storeKey(context.Context, auth.Key, string, string) (string, error) {
	return "", exit.With(exit.Usage, "the state of a server is on Linux only: leave out --data, --redis and --local, and ask a server that runs (--server, --api-key)")
}
