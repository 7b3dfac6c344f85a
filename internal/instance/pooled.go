package instance

import (
	"context"
	"time"
)

// Pooled is a sandbox that waits for a thread. Of its instance, what belongs to a thread is not set. The instance of the
// thread that claims it has this Pooled, too.
type Pooled struct {
	*Instance
	Files string // the folder that will be the thread's
	Image string // what its image was, "" where the driver cannot tell
	Made  time.Time

	Cancel   context.CancelFunc // ends its making
	Forget   func()             // the pool forgets it: it is a thread's, or gone
	Unwanted bool               // it goes as soon as it is made; guarded by the mutex of the pool
}

// Waits reports whether the instance is in the pool, and not a thread's.
func (inst *Instance) Waits() bool { return inst.Pooled != nil && inst.Pooled.Instance == inst }
