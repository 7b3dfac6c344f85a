package sandboxd

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sandboxd/filter"
	"github.com/skerry-sandbox/skerry/internal/sandboxd/process"
)

// ToolServerCommand is the argument that makes PID 1 run one MCP server instead of serving execs.
const ToolServerCommand = "toolserver"

// maxToolServer bounds the description of a tool server.
const maxToolServer = 1 << 20

// exitNotStarted is the exit code of PID 1 when the server's program cannot be started.
const exitNotStarted = 127

// ToolServerOptions are the paths of a tool server's sandbox; tests change them.
type ToolServerOptions struct {
	StdioSocket  string
	EgressSocket string
	EgressAddr   string
	// Dial connects to one of the two sockets; nil: by its path.
	Dial Dialer
	Log  *slog.Logger
}

// DefaultToolServer returns the options of a real sandbox.
func DefaultToolServer(log *slog.Logger) ToolServerOptions {
	return ToolServerOptions{
		StdioSocket: sandbox.StdioSocket, EgressSocket: sandbox.EgressSocket,
		EgressAddr: fmt.Sprintf("127.0.0.1:%d", sandbox.EgressPort), Log: log,
	}
}

// RunToolServer connects twice to the server's socket. The first connection carries a
// sandbox.ToolServerStart, as four bytes of length (little endian) and JSON. It is then the standard input
// and output of the program; the second connection is its standard error. RunToolServer returns the exit
// code of PID 1 when the program has ended; what it left behind ends with PID 1.
func RunToolServer(ctx context.Context, o ToolServerOptions) int {
	stdio, start, err := receiveStart(ctx, o)
	if err != nil {
		o.Log.Error("no tool server to run", "error", err)
		return exitNotStarted
	}
	defer stdio.Close()
	stderr, err := dialFile(ctx, o)
	if err != nil {
		o.Log.Error("no standard error", "error", err)
		return exitNotStarted
	}
	defer stderr.Close()
	if start.Egress {
		way := &bridge{addr: o.EgressAddr, socket: o.EgressSocket, dialer: o.Dial, log: o.Log}
		go way.run(ctx) // ends with PID 1
	}
	if err := filter.InstallQuota(); err != nil {
		o.Log.Error("no tool server to run", "error", err)
		return exitNotStarted
	}
	if start.Copy != nil {
		if err := keepCopy(start.Copy); err != nil {
			fmt.Fprintf(stderr, "skerry: cannot copy the files of the plugin to %s: %v\n", start.Copy.To, err)
			return exitNotStarted
		}
	}
	path := start.Argv[0]
	if found := process.LookPath(path, envValue(start.Env, "PATH")); found != "" {
		path = found
	}
	pid, err := syscall.ForkExec(path, start.Argv, &syscall.ProcAttr{
		Dir: start.Dir, Env: start.Env,
		Files: []uintptr{stdio.Fd(), stdio.Fd(), stderr.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		fmt.Fprintf(stderr, "skerry: cannot start %q: %v\n", start.Argv[0], err)
		return exitNotStarted
	}
	_ = stdio.Close() // the end of the program is seen by the end of these
	code := reapUntil(pid)
	if code != 0 {
		fmt.Fprintf(stderr, "skerry: the program ended with exit code %d\n", code)
	}
	_ = stderr.Close()
	return code
}

func receiveStart(ctx context.Context, o ToolServerOptions) (*os.File, *sandbox.ToolServerStart, error) {
	f, err := dialFile(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	fail := func(err error) (*os.File, *sandbox.ToolServerStart, error) {
		return nil, nil, errors.Join(err, f.Close())
	}
	var length [4]byte
	if _, err := io.ReadFull(f, length[:]); err != nil {
		return fail(err)
	}
	n := binary.LittleEndian.Uint32(length[:])
	if n > maxToolServer {
		return fail(fmt.Errorf("a description of %d bytes", n))
	}
	text := make([]byte, n) // not a byte more: what follows is the program's input
	if _, err := io.ReadFull(f, text); err != nil {
		return fail(err)
	}
	var start sandbox.ToolServerStart
	if err := json.Unmarshal(text, &start); err != nil {
		return fail(err)
	}
	if len(start.Argv) == 0 {
		return fail(errors.New("no program is named"))
	}
	return f, &start, nil
}

// dialFile connects to the socket of standard streams. The file blocks, as a program expects of its standard streams.
func dialFile(ctx context.Context, o ToolServerOptions) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		conn, err := o.Dial.dial(ctx, o.StdioSocket)
		if err == nil {
			f, err := conn.File()
			_ = conn.Close()
			if err != nil {
				return nil, err
			}
			return f, unix.SetNonblock(int(f.Fd()), false)
		}
		select {
		case <-time.After(dialFirst):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// reapUntil takes every child that ends, until pid has.
func reapUntil(pid int) int {
	for {
		var ws syscall.WaitStatus
		got, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 1
		case got == pid && ws.Signaled():
			return 128 + int(ws.Signal())
		case got == pid:
			return ws.ExitStatus()
		}
	}
}
