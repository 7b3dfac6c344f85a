// Package sidecar is the server's end of the tunnel to a sandbox that does not see the server's disk
// (docs/decisions/0032-kubernetes.md). The other end is the program skerry-bridge beside the sandbox, package pod; what they
// say to each other is package wire, who they are is package pki, and what both do with files is package tree.
//
// The server dials. One connection with TLS of both sides carries everything, as streams of yamux: the connections that
// the sandbox makes to the sockets below sandbox.RunDir, and the copies of trees either way.
//
// Whatever comes from the pod is data of the sandbox: it is checked and bounded, and what it may change at the server are the
// sources of writable mounts.
//
// Locks: Conn.mu guards mounts, token and session. It is held for the assignment only: no network, no
// disk, no other lock. The channel op serialises what uses copied, since and uid; a caller takes it before
// mu.
package sidecar
