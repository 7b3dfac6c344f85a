// Package skills reads Agent Skills (folders with a SKILL.md, https://agentskills.io) and keeps them in a
// store by the digest of their files. It says which of them a user and a thread have, and makes the folders
// that sandboxes see at /mnt/skills and /mnt/plugins. It also says how a script of one is run.
//
// Locks: Library.mu guards what was read and made, in memory. public.mu is held while the sources are looked at, and while a
// set is made of what was found there; Library.mu and store.mu may be taken under it. Virtuals.mu guards a map. Views.prepare is held while a spare folder is made; Folder.mu, which is held while
// a folder is changed, and Views.mu may be taken under it. Folder.mu, then Views.mu, when a folder is returned; Views.mu, then
// Folder.mu of a spare, which no other goroutine has.
package skills
