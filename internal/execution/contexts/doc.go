// Package contexts holds stateful contexts: interpreters of a thread that keep their variables between runs
// (docs/contexts.md). They live in the thread's sandbox and end with it. What remains then is their name, to which a
// restart assigns a new interpreter.
//
// A context is starting, idle, busy with one exec, or lost. An exec claims an idle one (Acquire), says when it begins
// (Begin) and releases it with what became of it (End). A restart counts a new life, so that the end of a run of a former
// life changes nothing.
//
// The Registry knows the contexts of all threads and starts none. Contexts starts them, for callers.
//
// Locks: Registry.mu guards all contexts. Life.mu of package instance may be taken under it; no sandbox is asked, and no record is
// written, while it is held.
package contexts
