package threadevents

import (
	"context"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/service"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

const (
	// maxSubject bounds the subject of an exec in an event, in bytes; maxPaths and maxPathBytes the paths of one.
	maxSubject   = 200
	maxPaths     = 50
	maxPathBytes = 8 << 10
	// tellTime bounds telling another server of a change.
	tellTime = 2 * time.Second
)

// ExecStarted tells of an exec that runs.
func (f *Feeds) ExecStarted(t sandbox.Thread, info func() sandbox.ExecInfo) {
	f.Publish(t, func() sandbox.ThreadEvent {
		return sandbox.ThreadEvent{Kind: sandbox.EventExecStarted, Exec: shortened(info())}
	})
}

// ExecEnded tells of the end of an exec, and of the files that it is known to have changed.
func (f *Feeds) ExecEnded(t sandbox.Thread, info func() (sandbox.ExecInfo, sandbox.Result)) {
	var res sandbox.Result
	f.Publish(t, func() sandbox.ThreadEvent {
		var about sandbox.ExecInfo
		about, res = info()
		if about.Status == sandbox.StatusRunning { // its record is not durable: how it ended is not shown
			about.Status = sandbox.StatusLost
		}
		return sandbox.ThreadEvent{Kind: sandbox.EventExecEnded, Exec: shortened(about)}
	})
	if len(res.Files) == 0 && !res.FilesTruncated {
		return
	}
	f.Publish(t, func() sandbox.ThreadEvent {
		changed := make([]string, 0, len(res.Files))
		for _, c := range res.Files {
			changed = append(changed, c.Path)
		}
		return filesChanged(res.ExecID, changed, res.FilesTruncated)
	})
}

// SandboxChanged tells that the thread's sandbox began, changed its state or ended.
func (f *Feeds) SandboxChanged(t sandbox.Thread, kind sandbox.ThreadEventKind, change sandbox.ChangedSandbox) {
	f.Publish(t, func() sandbox.ThreadEvent { return sandbox.ThreadEvent{Kind: kind, Sandbox: &change} })
}

func shortened(i sandbox.ExecInfo) *sandbox.ExecInfo {
	if len(i.Subject) > maxSubject {
		i.Subject = strings.ToValidUTF8(i.Subject[:maxSubject], "") + "…"
	}
	return &i
}

// filesChanged is the event of files that changed. more: there may be others.
func filesChanged(exec string, changed []string, more bool) sandbox.ThreadEvent {
	files := &sandbox.ChangedFiles{ExecID: exec, Paths: []string{}, More: more}
	bytes := 0
	for _, p := range changed {
		if bytes += len(p); len(files.Paths) == maxPaths || bytes > maxPathBytes || !utf8.ValidString(p) {
			files.More = true
			break
		}
		files.Paths = append(files.Paths, p)
	}
	return sandbox.ThreadEvent{Kind: sandbox.EventFilesChanged, Files: files}
}

// ApprovalWaits tells of a call that waits for a person. over tells how that ended.
func (f *Feeds) ApprovalWaits(a sandbox.Approval) (over func(sandbox.Approval)) {
	t := sandbox.Thread{Owner: sandbox.Owner{Tenant: a.Tenant, User: a.User}, ID: a.Thread}
	tell := func(kind sandbox.ThreadEventKind, a sandbox.Approval) {
		f.Publish(t, func() sandbox.ThreadEvent {
			return sandbox.ThreadEvent{Kind: kind, Approval: &sandbox.ApprovalSummary{
				ID: a.ID, State: a.State, ExecID: a.Exec, Server: a.Server, Tool: a.Tool, Why: a.Why, ExpiresAt: a.ExpiresAt,
			}}
		})
	}
	tell(sandbox.EventApprovalRequested, a)
	return func(a sandbox.Approval) {
		if a.State != sandbox.ApprovalPending { // else it waits on: this server stops
			tell(sandbox.EventApprovalEnded, a)
		}
	}
}

// Files are files of threads whose followers are told of changes.
type Files struct {
	service.Files
	Events *Events
}

// ChangeFiles implements service.Files.
func (f Files) ChangeFiles(ctx context.Context, c sandbox.Caller, id, action, path string, change func(*paths.FS) (int64, error)) error {
	err := f.Files.ChangeFiles(ctx, c, id, action, path, change)
	if err != nil {
		return err
	}
	t, err := c.Thread(id)
	if err != nil {
		return err
	}
	changed := []string{path}
	if action == audit.ActionFileMove {
		changed = strings.SplitN(path, " -> ", 2)
	}
	f.Events.filesChanged(context.WithoutCancel(ctx), t, changed)
	return nil
}

// elsewhere is a change of files as one server tells it to another.
type elsewhere struct {
	Tenant string   `json:"tenant"`
	User   string   `json:"user"`
	Thread string   `json:"thread"`
	Paths  []string `json:"paths"`
}

// filesChanged tells the followers of a thread of a change that a caller made, wherever they are.
func (x *Events) filesChanged(ctx context.Context, t sandbox.Thread, changed []string) {
	x.o.Feeds.Publish(t, func() sandbox.ThreadEvent { return filesChanged("", changed, false) })
	if ended, _ := x.o.Owners.Ending(t); ended != nil {
		return
	}
	if owner := x.o.Owners.Record(t).Replica; owner == "" || owner == x.o.Replica {
		return
	}
	text, err := json.Marshal(elsewhere{t.Tenant, t.User, t.ID, changed})
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, tellTime)
		defer cancel()
		err = x.o.Shared.TellFileChange(ctx, string(text))
	}
	if err != nil {
		x.o.Log.Debug("the thread's owner is not told of a changed file", "thread", t.String(), "error", err)
	}
}

// Watch passes on the changes of files that other servers make, until ctx ends.
func (x *Events) Watch(ctx context.Context) {
	connected := false
	x.o.Shared.WatchFileChanges(ctx, func(text string) {
		if text == "" { // some may have been missed, but for those before the first connection
			if connected {
				for _, t := range x.o.Feeds.threads() {
					x.o.Feeds.Publish(t, func() sandbox.ThreadEvent { return filesChanged("", nil, true) })
				}
			}
			connected = true
			return
		}
		var e elsewhere
		if json.Unmarshal([]byte(text), &e) != nil {
			return
		}
		t := sandbox.Thread{Owner: sandbox.Owner{Tenant: e.Tenant, User: e.User}, ID: e.Thread}
		x.o.Feeds.Publish(t, func() sandbox.ThreadEvent { return filesChanged("", e.Paths, false) })
	})
}

// threads returns those that have feeds.
func (f *Feeds) threads() []sandbox.Thread {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := make([]sandbox.Thread, 0, len(f.of))
	for t := range f.of {
		list = append(list, t)
	}
	return list
}
