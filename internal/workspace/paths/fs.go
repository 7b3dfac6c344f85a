package paths

import (
	"context"
	"io"
	"os"
)

// Options say what New shows.
type Options struct {
	Mounts []Mount
	// UID owns (as user and as group) what is made in writable mounts. 0 or less: no change of
	// owner, for a server that does not run as root.
	UID int
	// Hold calls a function that makes or writes a file so that the kernel's limits hold it, although
	// the server is root. nil: it is called as it is.
	Hold func(write func() error) error
	// Body is given what a Write reads from a sender that may be slow, before anything else is done, and returns what is
	// read instead. nil: that itself is read.
	Body func(r io.Reader) (*os.File, error)
	// Spool is the host folder where an archive is kept until all of it is checked, unless Body keeps it. "": that of the system.
	Spool string
	// Changing is told of each path, free of symbolic links, that is about to be made, replaced or removed: what is
	// below it, too. nil: none is.
	Changing func(path string)
	// Search waits until another search of files may run, and returns what ends it. nil: any number may.
	Search func(ctx context.Context) (end func(), err error)
	// DiskBytes is the most that workspace, uploads and outputs together may hold after a write. 0: no
	// limit.
	DiskBytes int64
}

// FS is a view of one thread's files. It may be used by many goroutines at once, and holds open
// folders until Close.
type FS struct {
	space    *namespace
	create   *creator
	disk     diskLimit
	spool    spool
	changing func(path string) // Options.Changing, or nothing
	search   func(ctx context.Context) (end func(), err error)
}

// New makes a view. It opens nothing yet: a host folder that cannot be opened fails the call that
// needs it. An error means that a Mount is wrong.
func New(o Options) (*FS, error) {
	space, err := newNamespace(o.Mounts)
	if err != nil {
		return nil, err
	}
	f := &FS{
		space: space, create: &creator{uid: o.UID, hold: o.Hold}, disk: diskLimit{space: space, most: o.DiskBytes},
		spool: spool{body: o.Body, dir: o.Spool}, changing: o.Changing, search: o.Search,
	}
	if f.changing == nil {
		f.changing = func(string) {}
	}
	return f, nil
}

// beginSearch waits until a search may run, and returns what ends it.
func (f *FS) beginSearch(ctx context.Context) (end func(), err error) {
	if f.search == nil {
		return func() {}, nil
	}
	return f.search(ctx)
}

// Close closes all open folders. Files from Open stay usable.
func (f *FS) Close() error { return f.space.close() }

// MaskHostPaths puts virtual paths in the place of the host folders of this view.
func (f *FS) MaskHostPaths(text string) string { return f.space.mask.replace(text) }
