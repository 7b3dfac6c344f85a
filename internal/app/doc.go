// Package app builds the server from its parts, in the order of their dependencies, and runs it: New, Run, Close.
// It also opens some of the parts alone, for commands that look at them.
//
// A part gets the parts it needs when it is made. These calls go the other way, through a function that reads a
// field of App, which a later step sets. No request, exec or tool call exists before all steps are done:
//   - approval.Options.Waits asks the orchestrator for the exec that waits. The orchestrator is built on the
//     approvals, by way of the policy's guard.
//   - policy.Options.Narrowed asks the orchestrator for the capabilities of a thread. The orchestrator is built on
//     the guard.
//   - bridge.Options.Keep has the orchestrator store a large result. The orchestrator is built on the bridge.
//   - limits.Options.Disk asks the orchestrator for the disk that a user takes. The orchestrator is built on the
//     limits.
//   - plugins.Options.Changed tells the hub and the library of skills. Both read the list of plugins, so they come
//     later. A nil field means that the part does not exist yet, and reads the list when it is made.
//
// Locks: imageImport.mu guards the import that is under way. The import runs without it.
package app
