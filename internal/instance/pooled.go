package instance

import (
	"context"
	"time"
)

// Pooled is a sandbox that waits for a thread. Of its instance, what belongs to a thread is not set.
type Pooled struct {
	*Instance
	Files string // the folder that will be the thread's
	Image string // what its image was, "" where the driver cannot tell
	Made  time.Time

	Cancel   context.CancelFunc // ends its making
	Unwanted bool               // it goes as soon as it is made; guarded by the mutex of the pool
}
