// Package sqlpack is a tool pack that lets agents read databases: PostgreSQL and SQLite. Results come as rows for a model,
// or as a file of the thread for code. Whether a statement may write is for the database to enforce, and not for a
// parser of ours: packages postgres and sqlite say how.
package sqlpack
