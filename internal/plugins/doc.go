// Package plugins reads, installs and serves plugins: folders with skills, commands and MCP servers. Their
// format is that of Claude Code (.claude-plugin/plugin.json) or of Agent Plugins 1.0 (a plugin.json at the
// root).
//
// Everything in a plugin is hostile. Folders are read through os.Root, every file and every list has a limit,
// and what is wrong becomes a finding: it takes away the part that it concerns and hides nothing else.
//
// Locks: installer.changing is held for reading from when files are put into the store until a list names
// them. It is held for writing while files that no list names are removed; everything may be taken under it.
// everybody.mu is held while plugins are read. The others guard maps: Service.mu, loadedPlugins.mu, stateFiles.mu.
package plugins
