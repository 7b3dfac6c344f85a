package sidecar

import (
	"context"
	"log/slog"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar/pki"
)

// Port is where the sidecar of a pod listens, unless it is told otherwise.
const Port = 7443

// Options of Dial.
type Options struct {
	// Addr is the sidecar's, as host:port.
	Addr string
	ID   sandbox.ID
	// Token is the fencing token of the lease; 0: for no thread yet.
	Token     int64
	Authority *pki.Authority
	// Mounts are those of the Spec. The Source of the one at sandbox.RunDir holds the sockets that the sandbox's connections
	// lead to; all others are copied. Each Target must be one of the sidecar's.
	Mounts []sandbox.Mount
	// Limits bound what Pull brings: DiskBytes for all files of a mount together, FileBytes for each. Both must be set.
	Limits sandbox.Limits
	// UID is the owner, and the group, of what Pull makes; 0 leaves it to this process's own.
	UID int
	// Digests remembers the digests of files between calls and connections; nil: one of its own.
	Digests *Digests
	Log     *slog.Logger // nil = none
}

// Dial attaches this process to a sandbox, as driver.Remote means it: it returns when the sidecar has accepted it, and
// other attachments have ended. It waits for a sidecar that does not answer until ctx ends, 30 s at most.
//
// Errors: Conflict: it was attached with a higher token; Unavailable: it cannot be reached; Invalid: the options are
// wrong, or do not fit the sidecar's mounts.
//
// From then on the connection is kept up: when it is lost it is made again, with pauses that grow to 2 s, until Close, or until
// the sidecar says that another process is attached. The caller closes it when the pod is gone.
func Dial(ctx context.Context, o Options) (*Conn, error) {
	return nil, sandbox.Errorf(sandbox.Unavailable, "the sandbox cannot be reached")
}

// Conn is an attachment. Its methods may be called concurrently; calls of Push, Pull and Remount wait for each other.
// While the connection is lost they wait for it until ctx ends, 15 s at most: Unavailable. After Close they say
// Unavailable, after another process was attached Conflict.
type Conn struct {
	done chan struct{}
}

// Push is that of driver.Remote. It returns when the sandbox has all of it. A path that no mount has is Invalid. What
// was not changed costs a stat of each file at the server, and no byte on the way where the mount is read-only.
func (c *Conn) Push(ctx context.Context, paths ...string) error {
	return sandbox.Errorf(sandbox.Unavailable, "the sandbox cannot be reached")
}

// Pull is that of driver.Remote. Conflict: a mount was never pushed as a whole since the sandbox was made, so that what
// is missing in it says nothing. Of sandbox.UserDataDir the folders workspace, uploads and outputs come, and nothing beside them.
func (c *Conn) Pull(ctx context.Context) (changed bool, err error) {
	return false, sandbox.Errorf(sandbox.Unavailable, "the sandbox cannot be reached")
}

// Remount takes other mounts, and another token that is not lower, from now on. It copies nothing. Conflict: the token
// is lower than one that the sidecar has seen.
func (c *Conn) Remount(ctx context.Context, token int64, mounts []sandbox.Mount) error {
	return sandbox.Errorf(sandbox.Unavailable, "the sandbox cannot be reached")
}

// Connected says whether the connection is there just now.
func (c *Conn) Connected() bool { return false }

// Done is closed when the attachment has ended for good, by Close or because another process is attached.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err says why Done is closed; nil before, and after Close.
func (c *Conn) Err() error { return nil }

// Close detaches, and waits until nothing of it runs any more. It may be called again.
func (c *Conn) Close() error { return nil }

// Digests remembers the SHA-256 of files by their device, inode, size and times. It is safe for concurrent use, and
// meant to be shared by all connections of a process.
type Digests struct{}

// NewDigests makes an empty one.
func NewDigests() *Digests { return &Digests{} }
