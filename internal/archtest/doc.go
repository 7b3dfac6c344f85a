// Package archtest has the rules of this tree as tests. They check which package may import which (the
// table in table_test.go), and which module may be used where (docs/dependencies.md). Every package and
// exported name needs a comment; only cmd/ and internal/app read the environment. Links, blocks and names
// in the documents must fit the tree. It reads the source tree itself, because what `go list` says is
// cached by `go test` and misses changes.
package archtest
