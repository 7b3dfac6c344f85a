// Package subprocess runs a function in a process of its own, for libraries that read text of others and cannot be
// bounded from outside: a parser that calls itself for every bracket ends the whole program when Go's stack is full, and
// one that tries all combinations cannot be stopped.
//
// The process is this program again, with another name. It has no environment, no open files but its input and output,
// and limits of stack, memory and processor time. It serves one call and ends, so that nothing of one caller is left for
// the next.
package subprocess
