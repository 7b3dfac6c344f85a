// Package wrappers keeps the typed wrappers of tools in sandboxes up to date: what /mnt/code-api shows is what the caller who
// ran something there last may use now.
//
// Refresh writes them before code runs, and costs a comparison when nothing has changed. Push writes each change of the
// hub's tools into all sandboxes that have wrappers. Neither waits long for an MCP server that is slow to list its tools.
package wrappers
