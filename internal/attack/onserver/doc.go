// Package onserver attacks a server from the inside of its sandboxes, and by what is handed to it:
// files that change while it reads them, archives, tokens, sockets, sandboxd itself, requests, and
// programs that use up all there is.
//
// Each attack has a name, says what it does and what is expected, and has a positive control: the same
// attack on the same files, against code that does the same without the guard. A control that does not
// succeed fails the test, because then the attack proves nothing.
package onserver
