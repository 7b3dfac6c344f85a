// Package cli is the commands of the program: their flags, what they do, and what they print. Status returns the
// exit code of each error. Larger groups of commands have packages of their own below it.
package cli
