// Package contents finds out what the images of templates are made of. It asks a sandbox of the template, at most once an
// hour, however many callers want to know.
//
// Locks: Contents.mu guards the lists, and is not held while a sandbox is asked.
package contents
