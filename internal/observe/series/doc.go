// Package series keeps how a server went over the last day, in its memory: how full it was, and what it counted, at even
// times. It is for people who look at one server; those who watch many scrape /metrics.
//
// Locks: Recorder.mu guards both rings, and is held for no call but those of the metrics' own memory.
package series
