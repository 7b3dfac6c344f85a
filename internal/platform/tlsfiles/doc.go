// Package tlsfiles is the TLS of a listener whose certificate, key and clients' authorities lie in files, which are
// read again when they change. Connections that are open go on as they are; new ones have what is in the files.
// Files that cannot be used change nothing.
//
// Locks: Server.mu guards the TLS configuration in use. New files are parsed while it is held; files are
// read before.
package tlsfiles
