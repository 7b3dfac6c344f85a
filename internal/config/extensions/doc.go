// Package extensions is the one reader and writer of extensions_config.json (mcpServers, skills, plugins).
// It also reads and writes the files beside it with each user's own choices:
// extensions_config.d/<tenant>/<user>.json. Files are read fresh, so the next call sees what another process
// wrote. They are replaced as a whole. A write keeps every byte outside the changed member: unknown keys,
// and ${…} that stands for a secret.
//
// Locks: Files.mu guards the table of users. No file is read while it is held.
package extensions
