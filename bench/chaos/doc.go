// Command chaos runs two servers on one data folder and one Redis, and lets many threads work on both.
// Meanwhile it kills servers, sandboxes, Redis and the container engine at random. In the end it checks that
// each accepted exec has exactly one end, that every written file is there, and that nothing is left over.
// With -packs, programs that provide tool packs are killed, too, and each call of their tools has one pair of records.
// It prints its counts, and fails when a check fails.
//
// Everything that it kills is its own, started by it: also the engine, a containerd or dockerd in a folder of its own.
//
// Locks: process.mu guards what is done to a process, work.mu what threads were told, harm.mu what was broken. None is held
// while another one is taken.
package main
