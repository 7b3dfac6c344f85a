// Command bench measures Skerry beside its alternatives, in one run on one machine. It prints medians, p99
// and ratios with the bars that they are to meet. It is a report, never a test: nothing fails on a time.
//
// It starts servers of its own, and plain containers of the same images to `docker exec` into. Calls of
// things that are compared alternate, so that a noisy neighbour hurts all alike. It also counts what
// tools cost a model in tokens, directly and by code.
//
// A run of all parts can be written down: as JSON, as a chart, and as the table of docs/performance.md.
//
// Locks: mutexes guard the results of callers that run side by side, and server.mu the threads to delete in the end. None is
// held while another one is taken.
package main
