package activation

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Hub is the guard that stands before the MCP servers, as activations see it.
type Hub interface {
	// Tools returns the tools that the caller may use in the thread.
	Tools(ctx context.Context, c sandbox.Caller, t sandbox.Thread) (sandbox.ToolSet, error)
}

// Threads are the threads of this server, as activations see them.
type Threads interface {
	// Ensure makes the thread when it is missing.
	Ensure(ctx context.Context, t sandbox.Thread) (uid int, err error)
	// ChangeRecord changes the thread's record. change may be called again when another request was faster.
	ChangeRecord(ctx context.Context, t sandbox.Thread, change func(*sandbox.ThreadInfo)) (sandbox.ThreadInfo, error)
}

// Records are the records of threads. A thread that is not there is NotFound.
type Records interface {
	Thread(ctx context.Context, t sandbox.Thread) (sandbox.ThreadInfo, error)
}

// Options are the parts that Activations work with.
type Options struct {
	Hub     Hub
	Threads Threads
	Records Records
}

// Activations keep the active tools of threads. All methods may be called at the same time.
type Activations struct {
	o Options

	mu       sync.Mutex
	watchers map[sandbox.Thread]map[chan struct{}]bool
}

// New returns the activations of a server.
func New(o Options) *Activations {
	return &Activations{o: o, watchers: map[sandbox.Thread]map[chan struct{}]bool{}}
}

// ActivateTool makes a tool of the thread active, by its printed name, and returns it. NotFound: the caller may use no
// such tool in the thread.
func (a *Activations) ActivateTool(ctx context.Context, c sandbox.Caller, id, name string) (sandbox.Tool, error) {
	t, err := c.Thread(id)
	if err != nil {
		return sandbox.Tool{}, err
	}
	set, err := a.o.Hub.Tools(ctx, c, t)
	if err != nil {
		return sandbox.Tool{}, err
	}
	i := slices.IndexFunc(set.Tools, func(tool sandbox.Tool) bool { return tool.Printed == name })
	if i < 0 {
		return sandbox.Tool{}, sandbox.Errorf(sandbox.NotFound, "there is no tool %.200q; a search shows the names of those that there are, as server__tool", name)
	}
	return set.Tools[i], a.add(ctx, t, []string{name})
}

// Shown makes those of the tools active that a full search showed and that are deferred.
func (a *Activations) Shown(ctx context.Context, c sandbox.Caller, t sandbox.Thread, found []sandbox.ToolFound) error {
	if len(found) == 0 {
		return nil
	}
	set, err := a.o.Hub.Tools(ctx, c, t)
	if err != nil {
		return err
	}
	var names []string
	for _, tool := range set.Tools {
		if tool.Disclosure == sandbox.DiscloseDeferred && slices.ContainsFunc(found, func(f sandbox.ToolFound) bool { return f.Name == tool.Printed }) {
			names = append(names, tool.Printed)
		}
	}
	return a.add(ctx, t, names)
}

// add makes tools active. Only a change is written: a search is asked for often, and finds the same tools.
func (a *Activations) add(ctx context.Context, t sandbox.Thread, names []string) error {
	info, err := a.o.Records.Thread(ctx, t)
	missing := errors.Is(err, sandbox.NotFound)
	if err != nil && !missing {
		return err
	}
	if !slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(info.ActiveTools, n) }) {
		return nil
	}
	if missing {
		if _, err := a.o.Threads.Ensure(ctx, t); err != nil {
			return err
		}
	}
	_, err = a.o.Threads.ChangeRecord(ctx, t, func(info *sandbox.ThreadInfo) { info.ActiveTools = with(info.ActiveTools, names) })
	if err != nil {
		return err
	}
	a.tell(t)
	return nil
}

// with is a list with names behind it, each once. The oldest fall out of one that is too long.
func with(list, names []string) []string {
	list = slices.Clone(list)
	for _, name := range names {
		if !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list[max(len(list)-sandbox.MaxActiveTools, 0):]
}

// PutAwayTool takes a tool out of the active ones, also one that is not there any more. NotFound: it is none of them.
func (a *Activations) PutAwayTool(ctx context.Context, c sandbox.Caller, id, name string) error {
	t, err := c.Thread(id)
	if err != nil {
		return err
	}
	info, err := a.o.Records.Thread(ctx, t)
	if err != nil {
		return err
	}
	if !slices.Contains(info.ActiveTools, name) {
		return sandbox.Errorf(sandbox.NotFound, "the tool %.200q is not active in this thread", name)
	}
	_, err = a.o.Threads.ChangeRecord(ctx, t, func(info *sandbox.ThreadInfo) {
		info.ActiveTools = slices.DeleteFunc(slices.Clone(info.ActiveTools), func(n string) bool { return n == name })
	})
	if err != nil {
		return err
	}
	a.tell(t)
	return nil
}

// WatchActiveTools returns a channel that gets a value when the active tools of a thread have changed, until stop is
// called. Several changes may be one value.
func (a *Activations) WatchActiveTools(t sandbox.Thread) (changed <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.watchers[t] == nil {
		a.watchers[t] = map[chan struct{}]bool{}
	}
	a.watchers[t][ch] = true
	return ch, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.watchers[t], ch)
		if len(a.watchers[t]) == 0 {
			delete(a.watchers, t)
		}
	}
}

func (a *Activations) tell(t sandbox.Thread) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for ch := range a.watchers[t] {
		select {
		case ch <- struct{}{}:
		default: // it has not seen the change before
		}
	}
}
