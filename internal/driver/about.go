package driver

import "context"

// About is what the engine behind a driver tells of itself. It is for people: nothing is decided by it.
type About struct {
	Engine   string            // name and version: "Docker 28.0.1"; "" when there is no engine
	API      string            // version of its API, and the oldest that is enough; "" when it has no numbers
	Programs map[string]string // the programs of the runtimes "runc" and "runsc" that are known to it
	Advice   map[string]string // what to do, for each runtime, when it cannot be used
}

// Describer is a driver that can tell of its engine.
type Describer interface {
	// About asks the engine. Errors are those of every other call: Unavailable when it does not answer.
	About(ctx context.Context) (About, error)
}
