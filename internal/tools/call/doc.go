// Package call makes the tool calls of agents: those that come by the API and by /mcp. Calls of code in a sandbox come
// over package bridge; both have one guard, the policy, and one recorder of what they did.
//
// A call is planned (Hub.Plan: who may call what, with which arguments), recorded as an attempt, counted against the
// limits, made (Hub.Make), and recorded with its outcome. A caller sees no outcome that is not recorded. A result that is too
// large for an agent to read lies in a file of the thread.
package call
