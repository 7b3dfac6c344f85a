// Package buckets opens the object stores that a configuration names.
package buckets
