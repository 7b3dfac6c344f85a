// Package client calls a running server for the commands: requests, streams of execs, and errors that say what to do.
package client
