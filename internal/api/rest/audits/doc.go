// Package audits is the routes of the audit log: records, how many there are, the live stream, exports, and the proof that
// the log is as it was written.
package audits
