// Package archtest holds the rules of the house as tests: who may import whom, that every package
// and exported name says what it is, and that only cmd/ reads the environment. It reads the source
// tree itself, because what `go list` says is cached by `go test` and misses changes.
package archtest
