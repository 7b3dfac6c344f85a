// Package upstream offers the skills that MCP servers have by the Skills extension of the protocol
// (SEP-2640) beside those of a thread, as "server:skill". Nothing of a skill is read before an agent
// activates it. Then each file is checked against the list that the server gave, and the skill is added to
// the thread, where its scripts want an approval.
//
// Locks: Skills.mu guards what was listed; no other is taken under it.
package upstream
