// Package exit is the exit codes of the program, as errors that carry them.
package exit
