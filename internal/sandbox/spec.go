package sandbox

import (
	"crypto/rand"
	"encoding/hex"
	"path/filepath"
	"strings"
	"time"
)

// ID names one sandbox (container): "skerry-" and 16 hex digits. It is never used again.
type ID string

// NewID makes an ID.
func NewID() ID {
	var raw [8]byte
	rand.Read(raw[:]) //nolint:errcheck // never fails
	return ID("skerry-" + hex.EncodeToString(raw[:]))
}

// State of a sandbox, as the API shows it.
type State string

// The states of a sandbox.
const (
	Starting State = "starting"
	Running  State = "running"
	Paused   State = "paused"
	Stopping State = "stopping"
	Lost     State = "lost"
	// Hibernated: there is no container; the next call that needs one starts it again.
	Hibernated State = "hibernated"
)

// Paths inside every sandbox.
const (
	UserDataDir  = "/mnt/user-data"
	WorkspaceDir = "/mnt/user-data/workspace"
	UploadsDir   = "/mnt/user-data/uploads"
	OutputsDir   = "/mnt/user-data/outputs"
	SkillsDir    = "/mnt/skills"
	PluginsDir   = "/mnt/plugins"
	CodeAPIDir   = "/mnt/code-api"
	HomeDir      = "/home/agent"
	RunDir       = "/run/skerry"
	// DaemonPath is where skerry-sandboxd is mounted; ControlSocket and BridgeSocket are the two
	// sockets of the server in RunDir.
	DaemonPath    = "/opt/skerry/skerry-sandboxd"
	ControlSocket = RunDir + "/control.sock"
	BridgeSocket  = RunDir + "/bridge.sock"
	BridgePort    = 9876
	// Of the sandbox of an MCP server: its standard streams, its way to the network, and where the
	// proxy for that listens inside.
	StdioSocket  = RunDir + "/stdio.sock"
	EgressSocket = RunDir + "/egress.sock"
	EgressPort   = 9877
)

// WorkspaceLinks lead to WorkspaceDir in images of ours, for programs that look for their files there.
var WorkspaceLinks = []string{"/home/user", "/workspace", "/mnt/data"}

// MemoryDir is where a session of Claude's Managed Agents has what it remembers, and TmpDir what ends with the sandbox.
const (
	MemoryDir = WorkspaceDir + "/.memory"
	TmpDir    = "/tmp"
)

// Link is a symbolic link of an image.
type Link struct{ Name, Target string }

// Links are those that images of ours have, and that some drivers make in others: WorkspaceLinks, and the places where
// programs that were written for other sandboxes keep what they remember, and what is to outlast a command.
func Links() []Link {
	links := []Link{{"/mnt/memory", MemoryDir}, {"/var/tmp", TmpDir}}
	for _, name := range WorkspaceLinks {
		links = append(links, Link{name, WorkspaceDir})
	}
	return links
}

// InWorkspace is a clean path without a link of WorkspaceLinks at its beginning.
func InWorkspace(name string) string {
	for _, link := range WorkspaceLinks {
		if rest, ok := strings.CutPrefix(name, link); ok && (rest == "" || rest[0] == '/') {
			return WorkspaceDir + rest
		}
	}
	return name
}

// SealedDaemon is where, beside a program for Spec.Daemon, a copy of it may be that others can execute and not read.
func SealedDaemon(program string) string {
	return filepath.Join(filepath.Dir(program), "sealed", filepath.Base(program))
}

// Limits bound one sandbox. Zero is refused: there is no unlimited sandbox.
type Limits struct {
	MemoryBytes int64 `json:"memory_bytes"` // with swap off
	CPUMillis   int64 `json:"cpu_millis"`   // 1000 = one core
	PIDs        int64 `json:"pids"`
	OpenFiles   int64 `json:"open_files"` // a process
	FileBytes   int64 `json:"file_bytes"` // largest single file (RLIMIT_FSIZE)
	TmpBytes    int64 `json:"tmp_bytes"`  // /tmp, a tmpfs; /home/agent has the same again
	DiskBytes   int64 `json:"disk_bytes"` // workspace, uploads and outputs together
}

// Mount is one bind mount. Source is a host path.
type Mount struct {
	Source   string
	Target   string
	ReadOnly bool
}

// Spec is all that a driver needs to start a sandbox. The driver adds the hardening of design §4 by
// itself; nothing in a Spec can loosen it but Loosen, by name.
type Spec struct {
	ID      ID
	Image   string // reference of the image for docker and containerd, or folder of the unpacked one for oci; "" = the host's own /usr (oci only)
	Runtime string // "runc" or "runsc"
	UID     int    // also the gid; never 0
	// Daemon is the host path of the static skerry-sandboxd, mounted at DaemonPath and run as PID 1
	// with Args.
	Daemon   string
	Args     []string
	Hostname string
	Mounts   []Mount // in order: a later one may lie inside an earlier one
	Limits   Limits
	Labels   map[string]string // kept by the driver, given back by Inspect and List
	// Token is the fencing token of the lease by which the thread is held; only a driver.Remote looks at it.
	Token  int64
	Loosen []Loosening // points of the hardening that are taken back; each once
	// Volume is where what is at UserDataDir lies; nil: in the mount's Source, or a copy of it that goes with the sandbox.
	// Only a driver.Volumes knows others.
	Volume *Volume
	// ClaimPool is the warm pool of the cluster that the sandbox is claimed from; "" = it is made. For the driver kubernetes alone.
	ClaimPool string
}

// Volume is a folder of a volume, which outlives sandboxes. Each volume is one user's, and each folder one thread's.
type Volume struct {
	Tenant, User string
	Thread       string
	// Ahead: what lies there counts, and nothing is copied to UserDataDir. Else what is there is made like the mount's Source.
	Ahead bool
	// Bare: nothing runs in the sandbox, and its files alone can be pulled.
	Bare bool
}

// Instance is a sandbox as its driver sees it.
type Instance struct {
	ID        ID
	State     State // Starting, Running, Paused or Lost (ended and not yet removed)
	Runtime   string
	Labels    map[string]string
	CreatedAt time.Time
	OOMKilled bool // meaningful when State is Lost
	ExitCode  int  // meaningful when State is Lost
}

// Labels that the orchestrator puts on every sandbox.
const (
	LabelInstall  = "io.skerry.install" // id of the data folder: a server touches only its own
	LabelTenant   = "io.skerry.tenant"
	LabelUser     = "io.skerry.user"
	LabelThread   = "io.skerry.thread"
	LabelTemplate = "io.skerry.template"
	LabelReplica  = "io.skerry.replica" // the server process that made it; another one may have it by now
	// LabelLoosened holds the loosened points, with commas between; absent when there are none.
	LabelLoosened = "io.skerry.loosened"
	// LabelRole is absent on a sandbox that was made for a thread.
	LabelRole = "io.skerry.role"
	// LabelUID is on those of RolePool: the uid of the workspace that it was made with.
	LabelUID = "io.skerry.uid"
)

// RoleSecond is the role of a thread's second sandbox, which runs scripts of skills beside the thread's own. It ends with
// the server of LabelReplica: no other one adopts it.
const RoleSecond = "second"

// RolePool is the role of a sandbox that was made for the pool of its template. It keeps it when a thread has it.
const RolePool = "pool"

// RoleFiles is the role of a sandbox that only copies a thread's files from their volume, or deletes them.
const RoleFiles = "files"

// Template is a kind of sandbox that a caller may ask for by name.
type Template struct {
	Name        string   `json:"name" yaml:"name"`
	Description string   `json:"description" yaml:"description"`
	Image       string   `json:"-" yaml:"image"`
	Runtime     string   `json:"runtime" yaml:"runtime"`
	Languages   []string `json:"languages" yaml:"languages"`
	Limits      Limits   `json:"limits" yaml:"-"`
	// IdleSeconds is how long a sandbox may be unused before it is hibernated, MaxAgeSeconds how old it may
	// get; 0: no bound, and of the age what the configuration says.
	IdleSeconds   int `json:"idle_timeout_s" yaml:"idle_timeout_s"`
	MaxAgeSeconds int `json:"max_age_s,omitempty" yaml:"max_age_s"`
	// JavaScript is bun, deno or node: what runs TypeScript and JavaScript; "" = the first that is there.
	JavaScript string `json:"javascript,omitempty" yaml:"javascript"`
	// Deno is what Deno lets such a program do, where it is the runtime; nil: all that the sandbox does.
	Deno *DenoPermissions `json:"deno,omitempty" yaml:"deno"`
	// Wasm is what a WebAssembly module may use; nil: the defaults.
	Wasm *Wasm `json:"wasm,omitempty" yaml:"-"`
	// Loosened are the points of the hardening that its sandboxes lack.
	Loosened []Loosening `json:"loosened,omitempty" yaml:"-"`
	// Env is in every exec, below what the sandbox and the exec are given.
	Env map[string]string `json:"env,omitempty" yaml:"env"`
	// Interpreters says, by language, how one waits for the next program.
	Interpreters map[string]Interpreter `json:"interpreters,omitempty" yaml:"interpreters"`
	// Smoke are the runs that show whether the image has what the template promises.
	Smoke []SmokeTest `json:"smoke,omitempty" yaml:"smoke"`
	// Pool says how many sandboxes wait for threads; nil: none.
	Pool *Pool `json:"pool,omitempty" yaml:"pool"`
	// ClaimPool: see Spec.
	ClaimPool string `json:"-" yaml:"-"`
}

// Pool is how many sandboxes of a template are ready before a thread asks, of all servers of a data folder together.
type Pool struct {
	Target int `json:"target"` // at least 1
	// Min of them are made at once, Burst side by side. Those above are made one by one, while no caller waits for a start.
	Min   int `json:"min"`
	Burst int `json:"burst"`
	// MaxAgeSeconds is how long one waits until another takes its place.
	MaxAgeSeconds int `json:"max_age_s"`
}

// MaxWarm is how many interpreters of one language may wait in a sandbox.
const MaxWarm = 4

// Interpreter says how the interpreter of a language waits in a sandbox.
type Interpreter struct {
	Warm int `json:"warm"` // how many wait: 0 to MaxWarm
	// Preload are the modules that a waiting Python has imported already. A module that cannot be imported is left out.
	Preload []string `json:"preload,omitempty"`
}

// SmokeTest is one run in a new sandbox of a template. Exactly one of Run, Argv and Code is set.
type SmokeTest struct {
	Name     string   `json:"name"`
	Run      string   `json:"run,omitempty"`  // a command for the shell
	Argv     []string `json:"argv,omitempty"` // the same without one
	Code     string   `json:"code,omitempty"` // a program text in Language
	Language string   `json:"language,omitempty"`
	Expect   string   `json:"expect,omitempty"` // what standard output must contain
	ExitCode int      `json:"exit_code"`
	// TimeoutSeconds bounds it: 1 to 120.
	TimeoutSeconds int `json:"timeout_s"`
}

// DenoPermissions are Deno's own (--allow-read and so on). An empty list allows nothing of its kind.
type DenoPermissions struct {
	Read  []string `json:"allow_read"`
	Write []string `json:"allow_write"`
	Net   []string `json:"allow_net"`
	Env   []string `json:"allow_env"`
	Run   []string `json:"allow_run"`
}

// Info is a sandbox as the API shows it.
type Info struct {
	ID                 ID        `json:"id"`
	State              State     `json:"state"`
	Template           string    `json:"template"`
	Driver             string    `json:"driver"`
	Runtime            string    `json:"runtime"`
	Warm               bool      `json:"warm"`
	CreatedAt          time.Time `json:"created_at"`
	IdleTimeoutSeconds int       `json:"idle_timeout_s"`
	Timings            Timings   `json:"timings_ms"`
	// Loosened are the points of the hardening that it lacks, by its template's wish.
	Loosened []Loosening `json:"loosened,omitempty"`
	// Waiting are the interpreters that wait for programs, where one sandbox is asked for.
	Waiting []WaitingInterpreter `json:"waiting,omitempty"`
	// EnvNames are the variables of its template and of the request that made it, where one sandbox is asked for.
	EnvNames []string `json:"env_names,omitempty" doc:"Names of the variables that each exec has, of the template and of PUT …/sandbox; in the answer for one thread alone"`
}

// WaitingInterpreter was started before its program is known. What a sandbox says of itself is not to be trusted.
type WaitingInterpreter struct {
	Language string `json:"language"`
	// Starting: it cannot be used yet, because it starts, or imports what it is to have imported.
	Starting bool `json:"starting,omitempty"`
	// Forks: it is forked for each program; others serve one.
	Forks bool `json:"forks,omitempty"`
	// MemoryBytes is without what it shares with files. A fork that waits shares nearly all of it.
	MemoryBytes int64 `json:"memory_bytes"`
}

// Timings say how long a sandbox took to start, in milliseconds a phase.
type Timings struct {
	Queue  float64 `json:"queue"`
	Create float64 `json:"create"`
	Ready  float64 `json:"ready"`
}
