// Package output prints for people and for programs. What comes from hostile text reaches no terminal with its
// control sequences.
package output
