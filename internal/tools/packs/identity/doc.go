// Package identity says who may provide which tool packs: by SSH keys of a file in the style of authorized_keys and of the
// state, by certificates that an authority among them signed, and by the certificates of TLS clients.
//
// Locks: Authority.mu guards what was read of the file and of the state. The state is not asked while it is held.
package identity
