// Package files is the files of threads, as callers read, change, watch and measure them. No sandbox is needed: the files lie
// on this host, or are copied there first (package copies).
//
// Locks: Watches.mu guards the counts of watches, searches.mu those of searches. Both are held alone.
package files

import (
	"context"
	"log/slog"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/instance/lifecycle"
	"github.com/skerry-sandbox/skerry/internal/limits"
	"github.com/skerry-sandbox/skerry/internal/ownership"
	"github.com/skerry-sandbox/skerry/internal/ownership/drain"
	"github.com/skerry-sandbox/skerry/internal/skills"
	"github.com/skerry-sandbox/skerry/internal/skills/mounted"
	"github.com/skerry-sandbox/skerry/internal/workspace"
	"github.com/skerry-sandbox/skerry/internal/workspace/copies"
	"github.com/skerry-sandbox/skerry/internal/workspace/threads"
)

// Options are what Files work with. All are needed, but for Limits.
type Options struct {
	Parts
	Audit     *audit.Log
	Limits    *limits.Gate // nil: nothing is limited
	Views     *skills.Views
	Templates map[string]instance.Template
	Default   string // name of the default template
	DataDir   string
	RunRoot   string // has the run folders of sandboxes
	Log       *slog.Logger
}

// Parts are the other parts of the server.
type Parts struct {
	Live      *instance.Map
	Owners    *ownership.Owners
	Drain     *drain.Drain
	Lifecycle *lifecycle.Lifecycle
	Skills    *mounted.Skills
	Threads   *threads.Threads
	Folders   *workspace.Folders
	Copies    *copies.Copies
	Watches   *Watches
}

// New returns the files of a server. Their watches end with ctx.
func New(ctx context.Context, o Options) *Files {
	return &Files{
		lifecycle: o.Lifecycle, drain: o.Drain, skills: o.Skills, audit: o.Audit, copies: o.Copies, ctx: ctx, dataDir: o.DataDir,
		defaultName: o.Default, folders: o.Folders, limits: o.Limits, live: o.Live, log: o.Log, owners: o.Owners, runRoot: o.RunRoot,
		templates: o.Templates, threads: o.Threads, views: o.Views, watches: o.Watches,
	}
}
