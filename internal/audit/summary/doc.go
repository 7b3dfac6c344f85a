// Package summary counts records of the audit log by time and by the values of some fields. It reads none.
package summary
