// Package interp turns a program text into a command.
//
// Each run has a private folder (mode 0700) with the text as main.<ending>, a start-up file of ours, and
// links to the code API. So code can import './servers/<server>' and './helpers/callMCPTool' whatever the
// working folder is. The text itself is not touched: line numbers in stack traces are the agent's own.
// callMCPTool and call_mcp_tool are there without an import. The start-up file defines them and loads the
// code API only at the first call. So a program without tools pays nothing for it, and runs where there is
// no code API.
//
// Locks: nodeVersions.mu guards the version of one program. It is held while that program is asked, so
// that it is asked once.
package interp
