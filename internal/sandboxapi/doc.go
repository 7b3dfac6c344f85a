// Package sandboxapi is the contract between the server and skerry-sandboxd. v1 holds the protobuf
// messages and the Connect service, link the connection that they travel on.
package sandboxapi

//go:generate ../../scripts/generate.sh
