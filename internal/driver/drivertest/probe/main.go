// Command probe is PID 1 of the sandboxes that drivertest starts. It does what the suite asks for,
// and says what came of it. It also runs the runtime probe of the drivers under test.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/skerry-sandbox/skerry/internal/driver/drivertest/probewire"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/runtimeprobe"
	"github.com/skerry-sandbox/skerry/internal/platform/anchor"
	"github.com/skerry-sandbox/skerry/internal/platform/confine"
)

const (
	childArg = "child" // followed by a request in JSON
	sleepArg = "sleep" // does nothing for a minute
)

// lookEvery is how often requests are looked for. Tests wait for answers, so it is short.
const lookEvery = 2 * time.Millisecond

func main() {
	confine.IfAsked()
	mode := ""
	if len(os.Args) > 1 {
		mode = os.Args[1]
	}
	if mode == anchor.Argument {
		if err := runAnchored(); err != nil {
			fmt.Fprintln(os.Stderr, "probe:", err)
			os.Exit(1)
		}
	}
	switch mode {
	case runtimeprobe.Arg:
		os.Exit(runtimeprobe.Main())
	case childArg:
		child(os.Args[2])
	case sleepArg:
		time.Sleep(time.Minute)
	default:
		serve()
	}
}

func serve() {
	// A signal from inside must not end PID 1 by Go's default.
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	for ; ; time.Sleep(lookEvery) {
		entries, err := os.ReadDir(probewire.Dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if name, ok := strings.CutPrefix(e.Name(), probewire.CommandPrefix); ok && strings.HasSuffix(name, probewire.Suffix) {
				take(name)
			}
		}
	}
}

// take reads a request, removes it, and answers it beside the others.
func take(name string) {
	file := filepath.Join(probewire.Dir, probewire.CommandPrefix+name)
	data, err := os.ReadFile(file)
	if err != nil || os.Remove(file) != nil {
		return
	}
	var req probewire.Request
	if err := json.Unmarshal(data, &req); err != nil {
		return
	}
	go answer(name, req)
}

func answer(name string, req probewire.Request) {
	var resp probewire.Response
	if req.Child {
		resp = inChild(req)
	} else {
		resp = perform(req)
	}
	data, err := json.Marshal(resp)
	if err != nil {
		data = []byte(`{"err":"answer cannot be encoded"}`)
	}
	// The suite does not look at names with another prefix.
	tmp := filepath.Join(probewire.Dir, "new-"+name)
	if os.WriteFile(tmp, data, 0o600) == nil {
		_ = os.Rename(tmp, filepath.Join(probewire.Dir, probewire.ResultPrefix+name))
	}
}

func inChild(req probewire.Request) probewire.Response {
	data, err := json.Marshal(req)
	if err != nil {
		return failed(err)
	}
	out, err := exec.Command("/proc/self/exe", childArg, string(data)).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return probewire.Response{Err: exit.Error(), Signal: int(ws.Signal()), Core: ws.CoreDump()}
		}
		return probewire.Response{Err: fmt.Sprintf("%v: %s", exit, tail(exit.Stderr))}
	}
	if err != nil {
		return failed(err)
	}
	var resp probewire.Response
	if err := json.Unmarshal(out, &resp); err != nil {
		return failed(err)
	}
	return resp
}

func tail(b []byte) string {
	if len(b) > 300 {
		b = b[:300]
	}
	return string(b)
}

func child(request string) {
	signal.Ignore(syscall.SIGXFSZ) // so that a write beyond the limit fails with EFBIG
	var req probewire.Request
	if err := json.Unmarshal([]byte(request), &req); err != nil {
		os.Exit(2)
	}
	if err := json.NewEncoder(os.Stdout).Encode(perform(req)); err != nil {
		os.Exit(3)
	}
}

// failed answers with an error, with its number when it has one.
func failed(err error) probewire.Response {
	resp := probewire.Response{Err: err.Error()}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		resp.Errno = int(errno)
	}
	return resp
}
