// Package skills keeps Agent Skills (folders with a SKILL.md, https://agentskills.io: package format) in a
// store by the digest of their files. It says which of them a user and a thread have, and makes the folders
// that sandboxes see at /mnt/skills and /mnt/plugins.
//
// Locks: Library.mu guards what was read and made, in memory. public.mu is held while the sources are looked at, and while a
// set is made of what was found there; Library.mu and store.mu may be taken under it. Virtuals.mu guards a map. Views.prepare is held while a spare folder is made; Folder.mu, which is held while
// a folder is changed, and Views.mu may be taken under it. Folder.mu, then Views.mu, when a folder is returned; Views.mu, then
// Folder.mu of a spare, which no other goroutine has.
package skills
