// Package idempotency answers a request that was sent before under the same Idempotency-Key with the first
// answer.
package idempotency
