// Package mounted has the skills of users and threads as this server's sandboxes show them. The library
// (package skills) knows what skills there are. This package says which of them a thread has: the skills
// that its user has on, narrowed by the thread's list, and its virtual ones.
//
// A sandbox shows them in a folder of its own (skills.Folder). First fills it before any code runs. Refresh
// updates it before each exec. Push writes changes into all sandboxes within a second. End releases it.
//
// Locks: SkillsView.Mu of package instance guards what a thread's skills were made of, and is held while a view is made in
// memory. indexes.mu is held for a look at a map. No file is written under either.
package mounted
