// Package sandbox is the vocabulary of Skerry: threads, sandboxes, execs, limits and the kinds of
// error that every other package speaks in. It imports nothing of ours and nothing outside the
// standard library, so that every package may import it.
package sandbox
