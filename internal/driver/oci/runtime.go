package oci

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/containerd/go-runc"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/runtimes"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// ociRuntime is a runtime with its program.
type ociRuntime struct {
	*runtimes.Program
	cli runc.Runc
}

func findRuntimes(root string, programs map[string]string) runtimes.Set[*ociRuntime] {
	found := make(runtimes.Set[*ociRuntime])
	for _, p := range runtimes.Find(programs) {
		found[p.Name] = &ociRuntime{p, runc.Runc{
			Command:   p.Path,
			Root:      root + "/" + p.Name,
			Log:       os.DevNull,
			LogFormat: runc.JSON,
			// A runtime command must not outlive the server: a command that finished its work after the
			// next server had cleaned up would leave a sandbox that no server knows.
			PdeathSignal: syscall.SIGKILL,
			Setpgid:      true, // an interrupt from the server's terminal is not for it
			ExtraArgs:    p.Flags,
		}}
	}
	return found
}

// withLog runs the command line with its log in a file.
func (r *ociRuntime) withLog(path string) *runc.Runc {
	cli := r.cli
	cli.Log = path
	return &cli
}

// list returns the containers that the runtime knows, by id. A runtime that was never used knows none.
func (r *ociRuntime) list(ctx context.Context) (map[string]*runc.Container, error) {
	if _, err := os.Stat(r.cli.Root); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	containers, err := r.cli.List(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	byID := make(map[string]*runc.Container, len(containers))
	for _, c := range containers {
		byID[c.ID] = c
	}
	return byID, nil
}

// sweepState removes what the runtime keeps of a sandbox. Its own delete does, unless the runtime was
// killed while it started the sandbox: runsc leaves its lock and socket then.
func (r *ociRuntime) sweepState(id sandbox.ID) error {
	entries, err := os.ReadDir(r.cli.Root)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if strings.Contains(e.Name(), string(id)) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(r.cli.Root, e.Name())))
		}
	}
	return err
}

// devNull is the output of a sandbox's PID 1: a pipe would end it with the server, and
// a file would be a place to fill the host's disk.
type devNull struct {
	runc.IO
	file *os.File
}

func openDevNull() (*devNull, error) {
	base, err := runc.NewNullIO()
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, errors.Join(err, base.Close())
	}
	return &devNull{IO: base, file: file}, nil
}

// Set implements runc.IO.
func (n *devNull) Set(cmd *exec.Cmd) {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = n.file, n.file, n.file
}

// Close implements runc.IO.
func (n *devNull) Close() error {
	return errors.Join(n.file.Close(), n.IO.Close())
}

// maxLogBytes bounds what is read of a runtime's log: commands log little at this level.
const maxLogBytes = 64 << 10

// lastError returns the last error that a runtime wrote to its log, or "".
func lastError(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close() //nolint:errcheck // only read
	found := ""
	// Objects one after another: runc puts line breaks between them, runsc does not.
	for decoder := json.NewDecoder(io.LimitReader(f, maxLogBytes)); ; {
		var entry struct {
			Level string `json:"level"`
			Msg   string `json:"msg"`
		}
		if decoder.Decode(&entry) != nil {
			return found
		}
		if entry.Level == "error" || entry.Level == "fatal" {
			found = entry.Msg
		}
	}
}
