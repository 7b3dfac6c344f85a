// Package extensions is the one reader and writer of extensions_config.json (mcpServers, skills,
// plugins) and of the files beside it in which each user's own choices lie:
// extensions_config.d/<tenant>/<user>.json. Files are read fresh, so that what another process writes is
// seen at the next call; they are replaced as a whole, with every byte kept that is not the member in
// question: keys that this server does not know, and ${…} that stands for a secret.
//
// Locks: Files.mu guards the table of users; follower.mu what is known of one file, and is held while that
// file is read. Neither is taken while the other is held.
package extensions
