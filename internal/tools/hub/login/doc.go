// Package login gets and keeps the access tokens by which the hub reaches MCP servers. It follows OAuth 2.1
// as the MCP specification has it. That includes protected resource metadata (RFC 9728), authorization
// server metadata (RFC 8414, OpenID Connect), PKCE, and resource indicators (RFC 8707). It also includes
// issuer checks (RFC 9207), dynamic registration (RFC 7591) and client ID metadata documents.
//
// No person sits in front of a server, so a grant that needs a person has two halves: Begin returns the URL to
// open, Finish takes what the browser was sent back with. Until then requests go out without a token and
// fail with ErrNeeded. Grants of machines need no person.
//
// What a server, its metadata and its authorization server say is hostile: every request goes through
// guard.go, and nothing of it but short codes gets into an error.
//
// Locks: Vault.mu guards the slots and their users; slot.mu one login, and is held while its file is read.
// Neither is taken while the other is held. The channel turn is taken before slot.mu: its holder asks for
// tokens.
package login
