package activation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// world is one thread's record and tools.
type world struct {
	info   sandbox.ThreadInfo
	there  bool
	made   int
	writes int
	set    sandbox.ToolSet
	broken error
}

func (w *world) Tools(context.Context, sandbox.Caller, sandbox.Thread) (sandbox.ToolSet, error) {
	return w.set, nil
}

func (w *world) Thread(context.Context, sandbox.Thread) (sandbox.ThreadInfo, error) {
	if w.broken != nil {
		return sandbox.ThreadInfo{}, w.broken
	}
	if !w.there {
		return sandbox.ThreadInfo{}, sandbox.Errorf(sandbox.NotFound, "no thread")
	}
	return w.info, nil
}

func (w *world) Ensure(context.Context, sandbox.Thread) (int, error) {
	w.there = true
	w.made++
	return 1, nil
}

func (w *world) ChangeRecord(_ context.Context, _ sandbox.Thread, change func(*sandbox.ThreadInfo)) (sandbox.ThreadInfo, error) {
	w.writes++
	change(&w.info)
	return w.info, nil
}

var (
	caller = sandbox.Caller{Owner: sandbox.Owner{Tenant: "t", User: "u"}}
	thread = sandbox.Thread{Owner: caller.Owner, ID: "a"}
)

func tool(name string, d sandbox.Disclosure) sandbox.Tool {
	return sandbox.Tool{Server: "s", Name: name, Printed: "s__" + name, Disclosure: d}
}

func open(tools ...sandbox.Tool) (*world, *Activations) {
	w := &world{set: sandbox.ToolSet{Tools: tools}}
	return w, New(Options{Hub: w, Threads: w, Records: w})
}

func found(names ...string) []sandbox.ToolFound {
	var list []sandbox.ToolFound
	for _, n := range names {
		list = append(list, sandbox.ToolFound{Name: n})
	}
	return list
}

// TestShown: what a full search showed is active when it is deferred, and is written once.
func TestShown(t *testing.T) {
	w, a := open(tool("late", sandbox.DiscloseDeferred), tool("plain", ""), tool("other", sandbox.DiscloseDeferred))
	if err := a.Shown(t.Context(), caller, thread, found("s__plain", "s__gone")); err != nil || w.writes+w.made != 0 {
		t.Fatalf("no deferred tool was shown: %v, %d writes", err, w.writes)
	}
	changed, stop := a.WatchActiveTools(thread)
	defer stop()
	for range 2 {
		if err := a.Shown(t.Context(), caller, thread, found("s__late", "s__plain")); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(w.info.ActiveTools, []string{"s__late"}) || w.writes != 1 || w.made != 1 {
		t.Errorf("%v after %d writes, made %d times", w.info.ActiveTools, w.writes, w.made)
	}
	select {
	case <-changed:
	default:
		t.Error("nobody was told")
	}
	w.broken = errors.New("away")
	if err := a.Shown(t.Context(), caller, thread, found("s__late")); err == nil {
		t.Error("a record that cannot be read is no empty one")
	}
}

// TestActivate: by name, also a tool that is not deferred; put away by name; bounded.
func TestActivate(t *testing.T) {
	w, a := open(tool("one", ""), tool("two", sandbox.DiscloseDeferred))
	if _, err := a.ActivateTool(t.Context(), caller, "a", "s__none"); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("an unknown tool: %v", err)
	}
	if got, err := a.ActivateTool(t.Context(), caller, "a", "s__one"); err != nil || got.Name != "one" {
		t.Errorf("%+v %v", got, err)
	}
	if err := a.PutAwayTool(t.Context(), caller, "a", "s__two"); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("one that is not active: %v", err)
	}
	w.set.Tools = nil // the server is gone, and the name is put away nevertheless
	if err := a.PutAwayTool(t.Context(), caller, "a", "s__one"); err != nil || len(w.info.ActiveTools) != 0 {
		t.Errorf("%v %v", w.info.ActiveTools, err)
	}
	var all []string
	for i := range sandbox.MaxActiveTools + 2 {
		w.set.Tools = append(w.set.Tools, tool(fmt.Sprint(i), sandbox.DiscloseDeferred))
		all = append(all, fmt.Sprintf("s__%d", i))
		if _, err := a.ActivateTool(t.Context(), caller, "a", all[i]); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(w.info.ActiveTools, all[2:]) {
		t.Errorf("%d names from %s on; want the newest %d", len(w.info.ActiveTools), w.info.ActiveTools[0], sandbox.MaxActiveTools)
	}
}

// TestWatch: a change is told to those who watch the thread, and to no others.
func TestWatch(t *testing.T) {
	_, a := open(tool("one", ""))
	mine, stopMine := a.WatchActiveTools(thread)
	others, stopOthers := a.WatchActiveTools(sandbox.Thread{Owner: caller.Owner, ID: "b"})
	defer stopOthers()
	if _, err := a.ActivateTool(t.Context(), caller, "a", "s__one"); err != nil {
		t.Fatal(err)
	}
	if len(mine) != 1 || len(others) != 0 {
		t.Errorf("told %d and %d times; want 1 and 0", len(mine), len(others))
	}
	stopMine()
	if len(a.watchers) != 1 {
		t.Errorf("%d threads are watched; want 1", len(a.watchers))
	}
}
