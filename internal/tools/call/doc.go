// Package call makes tool calls. Maker is the one way of a call: those of code in a sandbox come to it by package
// bridge, those of agents by Calls, for the API, /mcp and prompts.
//
// A call is planned (the guard says who may call what, with which arguments), recorded as an attempt, and
// counted against the limits. Then it is made, and recorded with its outcome. A name that is no tool is
// recorded, too. An agent sees no outcome that is not recorded. A result that is too large for an agent to
// read lies in a file of the thread.
package call
