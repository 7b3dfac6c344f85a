package driver

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Remote is a driver whose sandboxes run on other machines and do not see the disk of the server. A bind
// mount elsewhere is a copy there. A tunnel leads to the sockets of the server's folder for the sandbox
// (docs/decisions/0032-kubernetes.md). Between two of these calls either side may have changed; a caller
// that wants both to be the same says so:
//
//   - Create copies the sources of all mounts into the new sandbox before it returns, and attaches this process.
//   - Push copies from the server to the sandbox, Pull from the sandbox to the server.
//
// All methods carry the kinds of errors of Driver; Unavailable: the sandbox cannot be reached just now.
type Remote interface {
	// Attach connects this process with a running sandbox. From now on the sandbox's connections to the
	// sockets below sandbox.RunDir lead to the Source of that mount. Those of another process end, and Push
	// and Pull work, by the given mounts. It copies nothing. It may be called again, with other mounts,
	// labels or a higher token. Conflict: the sandbox was attached with a higher token.
	Attach(ctx context.Context, a Attachment) error
	// Detach ends what Attach or Create began, and leaves the sandbox alone. Nothing there is no error.
	Detach(ctx context.Context, id sandbox.ID) error
	// Push makes the sandbox have what the server has at these paths: files, or folders with all that is in them.
	// What is not there at the server is taken away. A path is one of a mount, or below it ("/mnt/skills",
	// "/mnt/user-data/workspace/a.txt"); processes of the sandbox see each file whole, as it was or as it is.
	// A read-only mount changes by whole folders: one below it is the old one or the new one.
	Push(ctx context.Context, id sandbox.ID, paths ...string) error
	// Pull makes the sources of all writable mounts have what the sandbox has. What it copied is on disk, durably,
	// when it returns; changed is false when there was nothing to copy. Regular files, folders and symbolic links
	// come; what else there is does not. QuotaExceeded: there is more than the limits of the sandbox let be.
	Pull(ctx context.Context, id sandbox.ID) (changed bool, err error)
}

// Volumes is a Remote that can keep the files of threads on volumes, which outlive sandboxes (sandbox.Volume). A volume is
// made when the first sandbox wants it, and stays. Two sandboxes do not have one folder at the same time: their users see to that.
type Volumes interface {
	Remote
	// RemoveFolder takes away the folder that the Spec names, whole, of which there is no sandbox. It makes one of the Spec's
	// ID for that, which is gone when it returns. Nothing there is no error.
	RemoveFolder(ctx context.Context, spec sandbox.Spec) error
}

// Attachment says how a process and a sandbox belong together.
type Attachment struct {
	ID sandbox.ID
	// Token is the fencing token of the lease by which the process holds the sandbox's thread. 0: it was made for
	// no thread yet.
	Token  int64
	Mounts []sandbox.Mount
	// UID is the owner of what Pull copies; 0: that of the sandbox. It is another one when the sandbox waited in a pool and
	// its thread had files.
	UID int
	// Labels are added to the labels of the sandbox; nil: none.
	Labels map[string]string
}
