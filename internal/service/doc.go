// Package service is the use cases of Skerry as interfaces: what REST, /mcp and E2B translate requests to, and what DeerFlow
// reaches by the public API. Other packages implement them; internal/app puts a Service together.
//
// Each use case takes the caller, checks what it may do, and returns errors with a sandbox.Kind.
package service
