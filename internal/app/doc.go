// Package app builds the server from its parts, in the order of their dependencies, and runs it: New, Run, Close.
// It also opens some of the parts alone, for commands that look at them.
//
// A part gets the parts it needs when it is made; none is told of another one later. Where two parts need each other,
// what they share is a part of its own, which both get:
//   - The instances and the execs of this server (work) are made before the orchestrator. So the deadline of an exec
//     can be held while a call waits for a person (run.Holds), and the policy's guard knows what a thread was
//     narrowed to (start.Narrowing).
//   - The folders of threads are made before the limits, which measure them (files.Meter).
//   - The runner of an exec tells the bridge where large results of its calls go (bridge.Exec.Keep).
//   - Plugins tell of their changes (changes). The hub and the library of skills listen from when they are made, and
//     read the plugins at that time.
//
// Locks: imageImport.mu guards the import that is under way, and changes.mu who listens. The import runs, and
// listeners are called, without them.
package app
