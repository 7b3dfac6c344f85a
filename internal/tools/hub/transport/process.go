package transport

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
)

const (
	nobody      = 65534
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	// endGrace is how long a server may take to end when its input ends, and again after SIGTERM.
	endGrace   = 2 * time.Second
	maxLogLine = 1000 // bytes
	tailLines  = 8    // of standard error, kept for the log
)

// Command is what to start, for whom.
type Command struct {
	path string
	args []string
	env  []string
	home string
	uid  uint32
	gid  uint32
	own  bool // run with the uids of this server: it cannot give other ones
}

// NewCommand finds the program of a stdio server and makes its home folder.
func NewCommand(s *serverconfig.Server, t *serverconfig.Target, home string, lookup func(string) (string, bool)) (*Command, error) {
	c := &Command{args: t.Args, home: home}
	var err error
	if c.uid, c.gid, c.own, err = idsOf(s); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the server's home folder cannot be made")
	}
	if !c.own {
		if err := os.Chown(home, int(c.uid), int(c.gid)); err != nil {
			return nil, sandbox.Wrap(sandbox.Internal, err, "the server's home folder cannot be made")
		}
	}
	path, ok := lookup("PATH")
	if !ok {
		path = defaultPath
	}
	c.env = append([]string{"PATH=" + path, "HOME=" + home, "LANG=C.UTF-8"}, t.Env...)
	for _, e := range t.Env {
		if p, ok := strings.CutPrefix(e, "PATH="); ok {
			path = p
		}
	}
	c.path, err = find(t.Command, path)
	return c, err
}

// idsOf returns the uid and gid of a stdio server.
func idsOf(s *serverconfig.Server) (uid, gid uint32, own bool, err error) {
	self := uint32(os.Geteuid())
	uid = nobody
	if s.RunAs != nil {
		uid = *s.RunAs
	}
	if self != 0 {
		if s.RunAs != nil && uid != self {
			return 0, 0, false, serverconfig.InvalidField("run_as", "the uid %d cannot be given: Skerry does not run as root", uid)
		}
		return self, uint32(os.Getegid()), true, nil
	}
	if uid != self && !mayGiveUIDs() {
		return 0, 0, false, sandbox.Errorf(sandbox.NotSupported, "command: this server may not start programs with another uid, as in a container without the capabilities SETUID and SETGID; set \"sandbox\": true, or give the url of a server elsewhere")
	}
	gid = uid
	if u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10)); err == nil {
		if n, err := strconv.ParseUint(u.Gid, 10, 32); err == nil {
			gid = uint32(n)
		}
	}
	return uid, gid, false, nil
}

// mayGiveUIDs reports whether root can start programs as another user here.
func mayGiveUIDs() bool {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&head, &have[0]); err != nil {
		return true // starting one says what is wrong
	}
	const both = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID
	return have[0].Effective&both == both
}

// IsRoot reports whether the program would run as root.
func (c *Command) IsRoot() bool { return c.uid == 0 }

// find looks a program up as a shell does, on the server's own PATH.
func find(name, path string) (string, error) {
	if strings.ContainsRune(name, '/') {
		if !filepath.IsAbs(name) {
			return "", serverconfig.InvalidField("command", "give an absolute path, or a name that is on PATH")
		}
		return name, nil
	}
	for _, dir := range filepath.SplitList(path) {
		full := filepath.Join(dir, name)
		if info, err := os.Stat(full); filepath.IsAbs(dir) && err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return full, nil
		}
	}
	return "", serverconfig.InvalidField("command", "%.80q is not on PATH", name)
}

// Process is a running stdio server: the leader of a process group, which is killed whole, or a sandbox.
type Process struct {
	stdin  Stream
	stdout Stream
	line   lineReader // of stdout
	stderr Stream
	signal func(unix.Signal) // to all of it
	log    *slog.Logger
	Exited chan struct{} // closed when the leader and its group are gone; then how is set
	said   chan struct{} // closed when its standard error was read to its end
	how    string        // "exit status 1"; "" when it ended well, or nothing tells
	tail   *tail

	once sync.Once
}

// Start starts the server and the goroutines that belong to it; they end with it. wg counts them.
func (c *Command) Start(wg *sync.WaitGroup, log *slog.Logger, redact *serverconfig.Redactor) (*Process, error) {
	childIn, stdin, err := os.Pipe()
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Unavailable, err, "no pipe for the server")
	}
	stdout, childOut, err := os.Pipe()
	if err != nil {
		closeAll(childIn, stdin)
		return nil, sandbox.Wrap(sandbox.Unavailable, err, "no pipe for the server")
	}
	stderr, childErr, err := os.Pipe()
	if err != nil {
		closeAll(childIn, stdin, stdout, childOut)
		return nil, sandbox.Wrap(sandbox.Unavailable, err, "no pipe for the server")
	}
	p := &Process{stdin: stdin, stdout: stdout, stderr: stderr, log: log, Exited: make(chan struct{}), said: make(chan struct{}), tail: &tail{redact: redact}}
	p.line.r = stdout
	cmd := &exec.Cmd{
		Path: c.path, Args: append([]string{c.path}, c.args...), Env: c.env, Dir: c.home,
		Stdin: childIn, Stdout: childOut, Stderr: childErr,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	}
	if !c.own {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: c.uid, Gid: c.gid, Groups: []uint32{}}
	}
	started := make(chan error, 1)
	wg.Go(func() { p.live(cmd, started) })
	err = <-started
	closeAll(childIn, childOut, childErr)
	if err != nil {
		closeAll(stdin, stdout, stderr)
		return nil, startError(err, c.uid)
	}
	wg.Go(p.readErrors)
	return p, nil
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

func startError(err error, uid uint32) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return sandbox.Wrap(sandbox.Unavailable, err, "command: there is no such program, or its interpreter is missing")
	case errors.Is(err, fs.ErrPermission):
		return sandbox.Wrap(sandbox.Unavailable, err, "command: the uid %d may not run it; make it readable, or set run_as", uid)
	}
	return sandbox.Wrap(sandbox.Unavailable, err, "command: it cannot be started")
}

// live starts the process and stays until it is gone. It keeps the thread: the kernel kills the child when
// the thread that made it ends (PR_SET_PDEATHSIG), so that no server outlives this process. And
// no_new_privs, which the child inherits, must not reach other threads. The thread ends with it.
func (p *Process) live(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		started <- fmt.Errorf("no_new_privs: %w", err)
		return
	}
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	pid := cmd.Process.Pid
	p.signal = func(sig unix.Signal) { _ = unix.Kill(-pid, sig) }
	started <- nil
	// The group is killed while its leader is still a zombie: until then no other process can get its number.
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	_ = unix.Kill(-pid, unix.SIGKILL)
	err := cmd.Wait()
	if err != nil {
		p.how = err.Error()
	}
	_ = p.stdin.Close()
	// A process that left the group may hold the other ends; it is not waited for.
	for _, f := range []Stream{p.stdout, p.stderr} {
		_ = f.SetReadDeadline(time.Now().Add(time.Second))
	}
	close(p.Exited)
}

// Stuck reports whether the same line of its output has been coming in for d, and slowly.
func (p *Process) Stuck(d time.Duration) bool { return p.line.stuck(d) }

// LastWords is what it wrote to standard error at the end.
func (p *Process) LastWords() string { return p.tail.String() }

// Ending says how a process that ended did so: its exit status or signal, "" for none, and its last words. It waits a
// moment for an end that is under way.
func (p *Process) Ending() (how, words string) {
	if !p.wait(endGrace) {
		return "", p.LastWords()
	}
	late := time.NewTimer(endGrace)
	defer late.Stop()
	select {
	case <-p.said:
	case <-late.C:
	}
	return p.how, p.LastWords()
}

// kill ends the whole group at once.
func (p *Process) kill() {
	select {
	case <-p.Exited:
	default:
		p.signal(unix.SIGKILL)
	}
}

// Close ends the process: its input ends, then come SIGTERM and SIGKILL. It returns when it is gone.
func (p *Process) Close() error {
	p.once.Do(func() {
		_ = p.stdin.Close()
		for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
			if p.wait(endGrace) {
				break
			}
			p.signal(sig)
		}
		p.wait(endGrace)
		_ = p.stdout.Close()
	})
	return nil
}

func (p *Process) wait(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.Exited:
		return true
	case <-t.C:
		return false
	}
}

// readErrors logs what the server says on standard error: as much of a line as is bearable, at debug
// level, and keeps the last lines for when it fails.
func (p *Process) readErrors() {
	defer close(p.said)
	defer p.stderr.Close()
	r := bufio.NewReaderSize(p.stderr, 4096)
	for {
		line, err := r.ReadSlice('\n')
		if text := p.tail.add(line); text != "" {
			p.log.LogAttrs(context.Background(), slog.LevelDebug, "MCP server says", slog.String("text", text))
		}
		for errors.Is(err, bufio.ErrBufferFull) { // the rest of a long line is dropped
			_, err = r.ReadSlice('\n')
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, net.ErrClosed) {
				p.log.Debug("MCP server: standard error cannot be read", "error", err)
			}
			return
		}
	}
}

// tail keeps the last lines of standard error.
type tail struct {
	redact *serverconfig.Redactor
	mu     sync.Mutex
	lines  []string
}

func (t *tail) add(line []byte) string {
	text := string(bytes.TrimSpace(line))
	if text == "" {
		return ""
	}
	text = t.redact.Replace(excerpt.Of(text, maxLogLine))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, text)
	if len(t.lines) > tailLines {
		t.lines = t.lines[1:]
	}
	return text
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "\n")
}
