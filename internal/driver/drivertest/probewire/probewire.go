// Package probewire is what drivertest and its program in the sandbox say to each other: files in a
// mounted folder, so that the suite depends on nothing but a read-write mount. A request is
// Dir/cmd-N.json, its answer Dir/result-N.json; both are renamed into place whole.
package probewire

import "github.com/skerry-sandbox/skerry/internal/sandbox"

// Dir is the folder of requests and answers inside the sandbox.
const Dir = sandbox.WorkspaceDir

// CommandPrefix and ResultPrefix begin the names of requests and answers.
const (
	CommandPrefix = "cmd-"
	ResultPrefix  = "result-"
	Suffix        = ".json"
)

// Op names what the program does.
type Op string

// The operations. Each answers with Err and Errno when it fails.
const (
	OpPing       Op = "ping"
	OpRead       Op = "read"       // Path -> Text (at most 256 KiB)
	OpWrite      Op = "write"      // Path, Data: makes or overwrites a file
	OpMkdir      Op = "mkdir"      // Path
	OpRemove     Op = "remove"     // Path, with all that is in it
	OpSymlink    Op = "symlink"    // Path leads to Data
	OpList       Op = "list"       // Path -> Lines
	OpReadlink   Op = "readlink"   // Path -> Text
	OpOwner      Op = "owner"      // Path -> Lines: uid, gid
	OpDevices    Op = "devices"    // -> Lines: "<type> <path>" of each device node under /dev
	OpOpenDevice Op = "opendevice" // Path: opens for reading
	OpIdentity   Op = "identity"   // -> Lines: uid, euid, gid, egid, then supplementary groups
	OpControls   Op = "controls"   // -> Lines: no_new_privs and the seccomp mode, as prctl tells
	OpInterfaces Op = "interfaces" // -> Lines
	OpDial       Op = "dial"       // Path = network, Data = address; sends "ping\n" and reads a line -> Text
	OpListen     Op = "listen"     // Path = network, Data = address: listens, and dials itself
	OpSyscall    Op = "syscall"    // Path = name: tries a call that a sandbox must not make
	OpSyscalls   Op = "syscalls"   // -> Lines: the names that OpSyscall knows
	OpAlloc      Op = "alloc"      // N bytes of memory, touched
	OpFork       Op = "fork"       // starts up to N processes -> N started
	OpFill       Op = "fill"       // Path, N: writes N bytes into a file -> N written
	OpOpenFiles  Op = "openfiles"  // N, Path: opens a file ("": /dev/null) N times at once -> N opened
	OpBurn       Op = "burn"       // N milliseconds of two busy threads -> N microseconds of CPU used
	OpExec       Op = "exec"       // Path: runs a program -> Text its output
	OpExit       Op = "exit"       // the program itself ends with status N
	OpLimits     Op = "limits"     // -> Lines: "<name> <soft> <hard>"
	OpCrash      Op = "crash"      // sets RLIMIT_CORE to N, then ends as a crash does; in /tmp
	OpMakeFiles  Op = "makefiles"  // Path, N: makes N empty files in a folder, and removes them -> N made
)

// Request is one request.
type Request struct {
	Op   Op     `json:"op"`
	Path string `json:"path,omitempty"`
	Data string `json:"data,omitempty"`
	N    int64  `json:"n,omitempty"`
	// Child runs the operation in a process of its own, which may die of it.
	Child bool `json:"child,omitempty"`
}

// Response is the answer to a Request.
type Response struct {
	Err    string   `json:"err,omitempty"`
	Errno  int      `json:"errno,omitempty"` // of Err, when it came from a system call
	Text   string   `json:"text,omitempty"`
	Lines  []string `json:"lines,omitempty"`
	N      int64    `json:"n,omitempty"`
	Signal int      `json:"signal,omitempty"` // what ended the child, when it was ended
	Core   bool     `json:"core,omitempty"`   // and whether that dumped core
}
