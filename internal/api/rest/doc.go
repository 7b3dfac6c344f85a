// Package rest translates HTTP to use cases and back. The OpenAPI document is made from the handlers that are registered here.
//
// What happens to a request, in this order: it gets an id and rolling deadlines (exchange.go), its
// Host and Origin are checked (guard.go), gin finds the route, the credential becomes a
// sandbox.Caller and the content type is checked (authenticate.go), a repeated Idempotency-Key is
// answered from memory (idempotency.go), huma checks the shape, and a handler calls one use case. An
// error becomes a problem document in one place (problem.go).
//
// /mcp is internal/api/mcp, behind the same checks.
//
// Locks: execStream.mu and that of an event stream are held while one event is written to the client, whose connection has a
// deadline. Neither is held while another one is taken, or while a use case is called.
package rest
