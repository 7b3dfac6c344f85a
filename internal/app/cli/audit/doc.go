// Package audit is the commands below `skerry audit`: query, export, tail, verify, checkpoint and keys.
package audit
