// Package elsewhere lets servers that share one Redis use each other's tool packs. Packs writes down which streams this
// server has, and reads which ones the others have, twice a second. It gets the manifests of theirs from them, and makes
// calls there over the way by which servers reach each other (ownership/peer). Package packs shows such a pack as one of
// this server.
//
// A server says that it lives with each look. The streams of one that is silent for the length of its lease, or whose
// process has ended, are gone. When Redis does not answer, what was read last counts as long as the other process lives.
//
// Locks: Packs.rounds serialises looks, and is taken first. Packs.mu guards what the last look has found and what this server
// has written down. Nothing is sent while it is held.
package elsewhere
