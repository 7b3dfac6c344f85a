// Package runs is the commands that run something in a thread's sandbox, and those on what runs there.
package runs
