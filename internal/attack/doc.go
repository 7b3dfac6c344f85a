// Package attack is the attack suite: named attempts to get out of a sandbox, or to harm its neighbours.
// Each has the refusal that it must meet. The tests make every attempt where an attacker would, and see that
// it is refused as the table says. Then, in a control, the same attempt must succeed once its guards are
// removed: otherwise the refusal proves nothing.
//
// What was seen stands in docs/security.md. The tests compare each result with what stands there;
// `go test ./internal/attack/... -update` writes it anew.
//
// How to add one: a row in a table_*.go file, an entry of the same name in probe/, and guards that control_test.go
// knows. Attacks on the server are in onserver, where each is a test of its own; they share the document.
package attack
