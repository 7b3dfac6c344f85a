package packs

import "context"

// Caller says for whom a call is made.
type Caller struct {
	Tenant string
	User   string
	Thread string
}

// running is a call as its context has it.
type running struct {
	caller   Caller
	progress func(done, total float64, message string)
}

type runningKey struct{}

// CallerOf says for whom the call of a context is made.
func CallerOf(ctx context.Context) Caller {
	r, _ := ctx.Value(runningKey{}).(running)
	return r.caller
}

// Progress tells the caller how far the call of a context is. total is 0 when it is not known.
func Progress(ctx context.Context, done, total float64, message string) {
	if r, ok := ctx.Value(runningKey{}).(running); ok {
		r.progress(done, total, message)
	}
}
