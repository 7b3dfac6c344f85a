// Package held bounds what the API and its adapters keep in memory of bodies, files and answers, of one caller and of all together.
//
// Locks: Bytes.mu guards the shares of callers. No other lock is taken, and nothing is waited for, while it is held.
package held
