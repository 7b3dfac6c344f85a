// Package secrets returns named values to callers that may use them: tokens for MCP servers, and for the
// environment of one exec. They come from the server's environment (a list of names) and from a folder of
// files (as Kubernetes mounts secrets). Others are stored, encrypted with age. No caller can read a value
// back.
//
// A name stands for the first of these that there is: the user's own value, that of the MCP server or of
// the skill that asks, the tenant's, the file, the variable. A skill is known by the digest of its files, and a public
// one also by its name.
//
// Locks: Keys.mu guards the identities and is held while the file is read, so that a changed file is read once. Service.others
// guards the list of what else is sealed, and follower.mu the list of those who want to know of changes; both are copied
// under the mutex and called without it. uses.mu guards the uses that are not written down yet. None is held while another
// one is taken, or while the store is asked.
package secrets
