// Package link is the one connection between the server and a sandbox.
//
// sandboxd dials the server's unix socket. So nothing inside the sandbox listens for the server, and no
// neighbour of sandboxd can pose as it. Both do the handshake, and then the roles turn round. sandboxd
// serves HTTP/2 on the dialled connection and the server is the client.
//
// The handshake is one line of JSON each way:
//
//	sandboxd: {"protocol":1,"version":"v0.1.0","secret":""}
//	server:   {"ok":true,"secret":"<64 hex digits>"}   or   {"ok":false,"error":"…"}
//
// The first connection of a fresh sandbox comes before any code ran in it. It has no secret and is
// given one, once: that it was handed out is on disk before the answer is sent. Every later
// connection must present it. The secret lives in the memory of sandboxd, which is non-dumpable; so
// code in the sandbox, which can reach the socket because it shares the uid, can neither take over
// the connection nor displace it.
//
// Locks: Listener.mu guards which connection is live and which are half open; a connection of the second kind may be closed
// under it, nothing is read or written. secretFile.mu is held while the file is written: a secret is handed out once. Conn.mu
// guards the count of calls and the timer. None of the three is held while another one is taken.
package link
