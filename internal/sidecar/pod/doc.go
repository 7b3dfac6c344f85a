// Package pod is the end of the tunnel that lies beside a sandbox: the program skerry-bridge.
//
// It listens, and does not dial, except that a server has it try whether the pod's network lets anything
// out. It attaches a client with the certificate of a server and a fencing token that is not lower than any
// before. The attachment ends the one before. It passes the sandbox's connections to the sockets of the run
// folder on to the attached server. It changes and lists its trees as that server asks.
//
// The sandbox shares the network, and sees the run folder and the trees. As far as it may write them, they
// change under every step. It does not see the certificate.
//
// Locks: attached.mu guards the session of one attachment, then sidecar.mu who is attached and with which token; sidecar.mu is
// held while that is written down, before it is in force. Trees are changed by the goroutine that has the token of the channel
// op; no mutex is held meanwhile.
package pod
