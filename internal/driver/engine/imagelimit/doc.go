// Package imagelimit bounds what the archive of an image unpacks to. An administrator chooses the archive, but often a stranger
// made it: a few kilobytes of it may say terabytes, or millions of folders.
package imagelimit
