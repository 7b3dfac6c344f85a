// Package problem makes problem documents (RFC 9457) of errors: the one place that knows what a client of
// the REST API sees of an error.
package problem
