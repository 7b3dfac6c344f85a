// Package archtest holds the rules of the house as tests: who may import whom (the table in
// table_test.go), which module may be used where (docs/dependencies.md), that every package and
// exported name says what it is, that only cmd/ and internal/app read the environment, and that the documents fit
// what is there. It reads the source tree itself, because what `go list` says is cached by `go test`
// and misses changes.
package archtest
