// Package httpserver translates HTTP to use cases and back. It is the only place that knows status
// codes. The OpenAPI document is made from the handlers that are registered here.
//
// What happens to a request, in this order: it gets an id and rolling deadlines (exchange.go), its
// Host and Origin are checked (guard.go), gin finds the route, the credential becomes a
// sandbox.Caller and the content type is checked (authenticate.go), a repeated Idempotency-Key is
// answered from memory (idempotency.go), huma checks the shape, and a handler calls one use case. An
// error becomes a problem document in one place (problem.go).
package rest
