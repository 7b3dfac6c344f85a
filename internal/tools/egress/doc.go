// Package egress is the only way to the network for a sandbox: an HTTP proxy (CONNECT, RFC 9110 §9.3.6) on
// a unix socket. It connects only to the hosts of a list.
//
// The proxy resolves names, not the sandbox, and checks the address of every connection when it is made. It
// refuses private, link-local, loopback and metadata addresses under any name, also when the name resolves
// differently the second time. What goes through the tunnel is not read.
package egress
