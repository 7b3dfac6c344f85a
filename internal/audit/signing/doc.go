// Package signing holds the keys that sign the audit log: where the private one comes from, and which public ones are
// believed.
//
// A private key lies outside the data folder, in a file that only the server's user can read. Or it comes in
// the environment, or stays with an external signer. The public ones are listed beside the log (Ring). Each
// key vouches for the next one, and the next one vouches for it in turn.
//
// Locks: Heads.mu serialises signatures, and is held while a signer is asked and files are written.
// File.mu guards the key of a file, and is taken after Heads.mu.
package signing
