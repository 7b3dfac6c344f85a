// Package segment reads and writes the files of the audit log: the segments of a writer, line by line, while they grow
// and when they are full or packed, and what lies beside them. It appends no record.
package segment
