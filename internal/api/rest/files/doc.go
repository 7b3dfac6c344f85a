// Package files is the routes of files of threads: one file by its text or its bytes, many in one request,
// archives of folders, and watches.
package files
