// Package rest translates HTTP to use cases and back. The OpenAPI document is made from the handlers that
// are registered here.
//
// A request passes these steps in order. It gets an id and rolling deadlines, and its Host and Origin are
// checked (exchange). gin finds the route. The credential becomes a sandbox.Caller, whose role is compared
// with the route's rule (access, route). Another server answers when the thread is there (forward). A route
// that goes says so (route). Limits are counted (checks.go), and the content type is checked (route). A repeated Idempotency-Key is answered
// from memory (idempotency). huma checks the shape, and a handler calls one use case. One place turns an
// error into a problem document (problem).
//
// The routes of files are in files, those of execs, contexts and terminals in execs, those of the audit log in
// audits; they write streams with eventstream. /mcp is internal/api/mcp, behind the same checks.
package rest
