// Package serverconfig reads and changes the configuration of MCP servers: that of the file
// extensions_config.json, and that of users' own servers, from plugins. It checks it, shows it without its
// secrets, and puts in what ${NAME} and ${secret:NAME} stand for.
//
// A user's server never replaces, renames or hides a server of the file. Its values are the user's, its
// program runs in a sandbox and nowhere else.
//
// Locks: File.mu guards what was read of the file, Redactor.mu the secrets of one connection. Each is
// taken last, and no file is written while one is held.
package serverconfig
