// Package attack is the attack suite: named attempts to get out of a sandbox, or to harm what is beside it, with
// the refusal that each must meet. The tests make every attempt where it would be made, see that it is refused
// in the way the table says, and then, in a control, that the same attempt succeeds once its guards are
// taken away: a refusal that nothing holds up would prove nothing.
//
// What was seen stands in docs/security.md. The tests compare each result with what stands there;
// `go test ./internal/attack/... -update` writes it anew.
//
// How to add one: a row in a table_*.go file, an entry of the same name in probe/, and guards that control_test.go
// knows. Attacks on the server are in onserver, where each is a test of its own; they share the document.
package attack
