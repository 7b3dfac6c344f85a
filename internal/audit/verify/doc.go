// Package verify checks whether a log is as it was written: it reads the files, and needs neither the log that writes
// them nor Redis.
package verify
