// Package egress is the one way to the network that a sandbox can be given: an HTTP proxy (CONNECT,
// RFC 9110 §9.3.6) on a unix socket, which opens connections to the hosts of a list and to no other.
//
// Names are resolved here, not in the sandbox, and the address of every connection is checked when it
// is made: private, link-local, loopback and metadata addresses are refused whatever name leads there,
// also when the name answers differently the second time. What goes through the tunnel is not read.
package egress
