// Package record says what a line of the audit log is: its members, its canonical form and hash, what is redacted in
// it, and the signed heads that are among the records. It knows no file.
package record
