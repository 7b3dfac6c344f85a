// Package findings looks at what a running server depends on, with the words of `skerry doctor`: what is wrong, and what to do.
// Each check is cheap, has a deadline, and changes nothing.
package findings
