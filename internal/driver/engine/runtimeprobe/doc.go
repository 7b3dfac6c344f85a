// Package runtimeprobe finds out whether a runtime keeps the promises that cannot be read off its
// version: it starts one small sandbox and looks.
//
//   - code inside reaches a socket of the host in a mounted folder, and the host reaches a socket that code made;
//   - the system call filter and no_new_privs are in force;
//   - the memory limit is in force: a program that takes more is ended.
//
// Check is the side of the driver. Main is the program inside, which any static program of ours can
// run when its first argument is Arg.
package runtimeprobe

import "github.com/skerry-sandbox/skerry/internal/sandbox"

// Arg is the first argument of a program that shall run Main.
const Arg = "runtime-probe"

// Files of the folder that both sides see at sandbox.UserDataDir.
const (
	hostSocket   = "host.sock"   // made by Check
	guestSocket  = "guest.sock"  // made by Main
	reportFile   = "report.json" // what Main found
	survivedFile = "survived"    // Main took more memory than it may have
)

// The memory of the probe's sandbox, and what Main takes. runsc itself needs some 40 MiB.
const (
	memoryLimit = 128 << 20
	memoryTaken = 3 * memoryLimit
)

// word is what each side says on the other's socket.
const word = "skerry\n"

// report is what Main found.
type report struct {
	HostSocket string `json:"host_socket"` // why it cannot be reached, "" when it can
	Seccomp    int    `json:"seccomp"`     // mode, 2 = a filter
	NoNewPrivs int    `json:"no_new_privs"`
}

// LabelProbe marks the sandboxes of probes, so that one left by a crash is known for what it is.
const LabelProbe = "io.skerry.runtime-probe"

func guestPath(name string) string { return sandbox.UserDataDir + "/" + name }
