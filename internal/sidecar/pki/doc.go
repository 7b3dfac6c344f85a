// Package pki is who is who between the servers of one installation and their sandboxes on other machines. One authority
// signs all of it, and each certificate can do one thing:
//
//   - that of a sandbox answers connections, under the name of its id (SandboxName), and can do nothing else;
//   - that of a server dials sandboxes and other servers (ClientName);
//   - that of a server answers the other servers (ServerName).
//
// The kinds differ in names and in extended key usage, and both are checked: who steals the certificate of one sandbox
// can play that sandbox, and no server. All is TLS 1.3, with certificates of both sides.
//
// Locks: Authority.mu guards the two certificates that the server shows. It is held while a new one is
// signed, which does no I/O.
package pki
