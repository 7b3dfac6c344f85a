// Package sandboxapi is the contract between the server and skerry-sandboxd. v1 holds the protobuf
// messages and the Connect service, link the connection that they travel on.
package sandboxapi

//go:generate protoc -I ../.. --go_out=../.. --go_opt=module=github.com/skerry-sandbox/skerry --connect-go_out=../.. --connect-go_opt=module=github.com/skerry-sandbox/skerry internal/sandboxapi/v1/sandbox.proto
