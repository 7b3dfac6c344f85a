// Package audit is the commands below `skerry audit`: query, calls, summary, show, report, export, tail, verify, checkpoint and keys.
package audit
