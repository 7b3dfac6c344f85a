// Package replay tries rules on calls that the audit log has: on one, or on all of a time.
package replay
