// Command skerry is the server of sandboxes for AI agents, and its command line.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/skerry-sandbox/skerry/internal/app/cli"
)

func main() {
	if len(os.Args) > 1 {
		probe(os.Args[1])
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if code := cli.Status(ctx, cli.NewRoot().ExecuteContext(ctx)); code != 0 {
		os.Exit(code) //nolint:gocritic // nothing is left to stop
	}
}
