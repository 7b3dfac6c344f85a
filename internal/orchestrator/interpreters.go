package orchestrator

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// interpreters asks a sandbox of this server which of them wait. A sandbox that does not answer at once is not asked again.
func (u *Threads) interpreters(ctx context.Context, t sandbox.Thread) []sandbox.WaitingInterpreter {
	inst := u.live.Find(t)
	if inst == nil || !inst.IsReady() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	st, err := inst.Client.Status(ctx)
	if err != nil {
		return nil
	}
	var list []sandbox.WaitingInterpreter
	for _, i := range st.GetInterpreters() {
		list = append(list, sandbox.WaitingInterpreter{Language: i.GetLanguage(), Starting: i.GetStarts(), Forks: i.GetForks(), MemoryBytes: i.GetMemoryBytes()})
	}
	return list
}
