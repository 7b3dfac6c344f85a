package call

import (
	"context"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// reportEvery is how often a client of /mcp hears that its call waits.
const reportEvery = time.Second

// watchedCall is the key, in a context, of who listens to the progress of a call.
type watchedCall struct{}

// ReportWait tells the client of an agent's own call that it waits, so that it does not give up.
func ReportWait(ctx context.Context, a sandbox.Approval) (over func(sandbox.Approval)) {
	progress, _ := ctx.Value(watchedCall{}).(func(sandbox.ToolProgress))
	if progress == nil {
		return func(sandbox.Approval) {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(reportEvery)
		defer tick.Stop()
		// Progress only grows, and the tool's own comes after: these steps are tiny.
		for step := 1e-6; ; step += 1e-6 {
			progress(sandbox.ToolProgress{Progress: step, Message: "waiting for the approval " + a.ID})
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return func(sandbox.Approval) {
		cancel()
		wg.Wait()
	}
}
