package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/driver/drivertest/probewire"
)

// netTimeout bounds connections that go nowhere: without a route they fail at once.
const netTimeout = 2 * time.Second

func perform(req probewire.Request) probewire.Response {
	op := ops[req.Op]
	if op == nil {
		return probewire.Response{Err: "unknown operation " + string(req.Op)}
	}
	resp, err := op(req)
	if err != nil {
		bad := failed(err)
		resp.Err, resp.Errno = bad.Err, bad.Errno
	}
	return resp
}

var ops = map[probewire.Op]func(probewire.Request) (probewire.Response, error){
	probewire.OpPing:       func(probewire.Request) (probewire.Response, error) { return probewire.Response{Text: "pong"}, nil },
	probewire.OpRead:       read,
	probewire.OpWrite:      write,
	probewire.OpMkdir:      mkdir,
	probewire.OpRemove:     remove,
	probewire.OpSymlink:    symlink,
	probewire.OpList:       list,
	probewire.OpReadlink:   readlink,
	probewire.OpOwner:      owner,
	probewire.OpDevices:    devices,
	probewire.OpOpenDevice: openDevice,
	probewire.OpIdentity:   identity,
	probewire.OpControls:   controls,
	probewire.OpInterfaces: interfaces,
	probewire.OpDial:       dial,
	probewire.OpListen:     listen,
	probewire.OpSyscall:    trySyscall,
	probewire.OpSyscalls:   listSyscalls,
	probewire.OpAlloc:      alloc,
	probewire.OpFork:       fork,
	probewire.OpFill:       fill,
	probewire.OpOpenFiles:  openFiles,
	probewire.OpBurn:       burn,
	probewire.OpExec:       run,
	probewire.OpLimits:     limits,
	probewire.OpCrash:      crash,
	probewire.OpMakeFiles:  makeFiles,
	probewire.OpExit: func(req probewire.Request) (probewire.Response, error) {
		os.Exit(int(req.N))
		return probewire.Response{}, nil
	},
}

func read(req probewire.Request) (probewire.Response, error) {
	f, err := os.Open(req.Path)
	if err != nil {
		return probewire.Response{}, err
	}
	defer f.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(io.LimitReader(f, 256<<10))
	return probewire.Response{Text: string(data)}, err
}

func write(req probewire.Request) (probewire.Response, error) {
	return probewire.Response{}, os.WriteFile(req.Path, []byte(req.Data), 0o600)
}

func mkdir(req probewire.Request) (probewire.Response, error) {
	return probewire.Response{}, os.Mkdir(req.Path, 0o700)
}

func remove(req probewire.Request) (probewire.Response, error) {
	return probewire.Response{}, os.RemoveAll(req.Path)
}

func symlink(req probewire.Request) (probewire.Response, error) {
	return probewire.Response{}, os.Symlink(req.Data, req.Path)
}

func list(req probewire.Request) (probewire.Response, error) {
	var resp probewire.Response
	entries, err := os.ReadDir(req.Path)
	for _, e := range entries {
		resp.Lines = append(resp.Lines, e.Name())
	}
	return resp, err
}

func readlink(req probewire.Request) (probewire.Response, error) {
	text, err := os.Readlink(req.Path)
	return probewire.Response{Text: text}, err
}

func owner(req probewire.Request) (probewire.Response, error) {
	var st unix.Stat_t
	err := unix.Lstat(req.Path, &st)
	return probewire.Response{Lines: []string{fmt.Sprint(st.Uid), fmt.Sprint(st.Gid)}}, err
}

func devices(probewire.Request) (probewire.Response, error) {
	var resp probewire.Response
	err := filepath.WalkDir("/dev", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil //nolint:nilerr // a folder that cannot be read hides nothing that could be opened
		case d.Type()&fs.ModeCharDevice != 0:
			resp.Lines = append(resp.Lines, "c "+path)
		case d.Type()&fs.ModeDevice != 0:
			resp.Lines = append(resp.Lines, "b "+path)
		}
		return nil
	})
	return resp, err
}

func openDevice(req probewire.Request) (probewire.Response, error) {
	f, err := os.OpenFile(req.Path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return probewire.Response{}, err
	}
	return probewire.Response{}, f.Close()
}

func identity(probewire.Request) (probewire.Response, error) {
	groups, err := os.Getgroups()
	ids := append([]int{os.Getuid(), os.Geteuid(), os.Getgid(), os.Getegid()}, groups...)
	var resp probewire.Response
	for _, id := range ids {
		resp.Lines = append(resp.Lines, fmt.Sprint(id))
	}
	return resp, err
}

func controls(probewire.Request) (probewire.Response, error) {
	var resp probewire.Response
	for _, option := range []int{unix.PR_GET_NO_NEW_PRIVS, unix.PR_GET_SECCOMP} {
		value, err := unix.PrctlRetInt(option, 0, 0, 0, 0)
		if err != nil {
			return resp, err
		}
		resp.Lines = append(resp.Lines, fmt.Sprint(value))
	}
	return resp, nil
}

func interfaces(probewire.Request) (probewire.Response, error) {
	var resp probewire.Response
	all, err := net.Interfaces()
	for _, i := range all {
		resp.Lines = append(resp.Lines, fmt.Sprintf("%s %s", i.Name, i.Flags))
	}
	return resp, err
}

func dial(req probewire.Request) (probewire.Response, error) {
	conn, err := net.DialTimeout(req.Path, req.Data, netTimeout)
	if err != nil {
		return probewire.Response{}, err
	}
	defer conn.Close() //nolint:errcheck // the exchange is over
	if err := conn.SetDeadline(time.Now().Add(netTimeout)); err != nil {
		return probewire.Response{}, err
	}
	if _, err := io.WriteString(conn, "ping\n"); err != nil {
		return probewire.Response{}, err
	}
	line, err := bufio.NewReader(io.LimitReader(conn, 1<<10)).ReadString('\n')
	return probewire.Response{Text: line}, err
}

func listen(req probewire.Request) (probewire.Response, error) {
	listener, err := net.Listen(req.Path, req.Data)
	if err != nil {
		return probewire.Response{}, err
	}
	defer listener.Close() //nolint:errcheck // the exchange is over
	conn, err := net.DialTimeout(req.Path, listener.Addr().String(), netTimeout)
	if err != nil {
		return probewire.Response{}, err
	}
	return probewire.Response{}, conn.Close()
}

func alloc(req probewire.Request) (probewire.Response, error) {
	const step = 1 << 20
	var held [][]byte
	for n := int64(0); n < req.N; n += step {
		block := make([]byte, step)
		for i := 0; i < len(block); i += 4096 {
			block[i] = 1
		}
		held = append(held, block)
	}
	sum := int64(0)
	for _, block := range held {
		sum += int64(block[0])
	}
	return probewire.Response{N: sum * step}, nil
}

func fork(req probewire.Request) (probewire.Response, error) {
	var started []*os.Process
	defer func() {
		for _, p := range started {
			_ = p.Kill()
			_, _ = p.Wait()
		}
	}()
	for range req.N {
		p, err := os.StartProcess("/proc/self/exe", []string{"probe", sleepArg}, &os.ProcAttr{})
		if err != nil {
			return probewire.Response{N: int64(len(started))}, err
		}
		started = append(started, p)
	}
	return probewire.Response{N: int64(len(started))}, nil
}

func fill(req probewire.Request) (probewire.Response, error) {
	f, err := os.OpenFile(req.Path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return probewire.Response{}, err
	}
	defer os.Remove(req.Path) //nolint:errcheck // the sandbox ends soon
	defer f.Close()           //nolint:errcheck // what matters is what Write said
	block := make([]byte, 64<<10)
	for written := int64(0); written < req.N; {
		n, err := f.Write(block[:min(int64(len(block)), req.N-written)])
		written += int64(n)
		if err != nil {
			return probewire.Response{N: written}, err
		}
	}
	return probewire.Response{N: req.N}, nil
}

func openFiles(req probewire.Request) (probewire.Response, error) {
	var files []*os.File
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	for range req.N {
		f, err := os.Open(cmp.Or(req.Path, "/dev/null"))
		if err != nil {
			return probewire.Response{N: int64(len(files))}, err
		}
		files = append(files, f)
	}
	return probewire.Response{N: int64(len(files))}, nil
}

// burn is run in a child, so that only its own time counts.
func burn(req probewire.Request) (probewire.Response, error) {
	end := time.Now().Add(time.Duration(req.N) * time.Millisecond)
	done := make(chan struct{})
	for range 2 {
		go func() {
			defer func() { done <- struct{}{} }()
			for time.Now().Before(end) {
			}
		}()
	}
	<-done
	<-done
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return probewire.Response{}, err
	}
	micros := (used.Utime.Sec+used.Stime.Sec)*1e6 + used.Utime.Usec + used.Stime.Usec
	return probewire.Response{N: micros}, nil
}

func run(req probewire.Request) (probewire.Response, error) {
	var args []string
	if req.Data != "" {
		args = strings.Fields(req.Data)
	}
	out, err := exec.Command(req.Path, args...).CombinedOutput()
	return probewire.Response{Text: string(out)}, err
}

func limits(probewire.Request) (probewire.Response, error) {
	var resp probewire.Response
	for name, which := range map[string]int{"nofile": unix.RLIMIT_NOFILE, "fsize": unix.RLIMIT_FSIZE, "core": unix.RLIMIT_CORE} {
		var have unix.Rlimit
		if err := unix.Prlimit(0, which, nil, &have); err != nil {
			return resp, err
		}
		resp.Lines = append(resp.Lines, fmt.Sprintf("%s %d %d", name, have.Cur, have.Max))
	}
	return resp, nil
}

// crash is run in a child: it does not return.
func crash(req probewire.Request) (probewire.Response, error) {
	limit := unix.Rlimit{Cur: uint64(req.N), Max: uint64(req.N)}
	if err := unix.Prlimit(0, unix.RLIMIT_CORE, &limit, nil); err != nil {
		return probewire.Response{}, err
	}
	if err := os.Chdir("/tmp"); err != nil {
		return probewire.Response{}, err
	}
	debug.SetTraceback("crash") // ends by SIGABRT, as a C program does
	panic("as asked for")
}

func makeFiles(req probewire.Request) (probewire.Response, error) {
	dir, err := os.MkdirTemp(req.Path, "many")
	if err != nil {
		return probewire.Response{}, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // the sandbox ends soon
	for i := range req.N {
		if err := os.WriteFile(fmt.Sprintf("%s/%d", dir, i), nil, 0o600); err != nil {
			return probewire.Response{N: i}, err
		}
	}
	return probewire.Response{N: req.N}, nil
}
