// Package e2b answers unmodified clients of E2B with our own use cases. It is a thin translation: a sandbox of E2B is
// a thread that was made here, its metadata are labels, its processes are execs, its code contexts are ours. It knows
// nothing that the thread does not know, but for the time at which one ends. What it cannot do it refuses with 501 and
// the name of what was asked for. See docs/e2b.md.
package e2b
