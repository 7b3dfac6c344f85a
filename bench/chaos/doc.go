// Command chaos runs two servers on one data folder and one Redis, lets many threads work on both, and
// kills servers, sandboxes, Redis and the container engine at random meanwhile. In the end it looks whether
// each exec that was accepted has exactly one end, whether all that was written is there, and whether
// nothing is left over. It prints its counts, and fails when something of that is not so.
//
// Everything that it kills is its own, started by it: also the engine, a containerd or dockerd in a folder of its own.
//
// Locks: process.mu guards what is done to a process, work.mu what threads were told, harm.mu what was broken. None is held
// while another one is taken.
package main
