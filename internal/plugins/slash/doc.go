// Package slash reads the commands of plugins, /plugin:name, and makes messages of them: it puts arguments, files and what
// other commands write into their text. Whatever runs or reads these comes in as functions.
package slash
