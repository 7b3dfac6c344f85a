// Package rest translates HTTP to use cases and back. The OpenAPI document is made from the handlers that
// are registered here.
//
// What happens to a request, in this order: it gets an id and rolling deadlines, and its Host and Origin
// are checked (exchange), gin finds the route, the credential becomes a sandbox.Caller whose role is
// compared with the route's rule (access, route), another server answers when the thread is there
// (forward), limits are counted (checks.go), the content type is checked (route), a repeated
// Idempotency-Key is answered from memory (idempotency), huma checks the shape, and a handler calls one
// use case. An error becomes a problem document in one place (problem).
//
// The routes of files are in files, those of execs, contexts and terminals in execs; both write streams
// with eventstream. /mcp is internal/api/mcp, behind the same checks.
package rest
