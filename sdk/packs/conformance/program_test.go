package conformance_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var provider = flag.String("provider", "", "the program under test with its arguments, divided by spaces; empty: that of sdk/go/packs")

// command is the program under test. TestMain sets it.
var command []string

func TestMain(m *testing.M) {
	flag.Parse()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	code := 1
	defer func() { os.Exit(code) }()
	dir, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer os.RemoveAll(dir)
	command = strings.Fields(*provider)
	if len(command) == 0 {
		command = []string{filepath.Join(dir, "provider")}
		out, err := exec.CommandContext(context.Background(), "go", "build", "-o", command[0], "../../go/packs/conformance").CombinedOutput()
		if err != nil {
			fmt.Fprintf(os.Stderr, "%v: %s\n", err, out)
			return
		}
	}
	code = m.Run()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// patience bounds each wait of the suite, on a machine under load.
const patience = time.Minute

// eventually waits until something holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// program is one run of the provider.
type program struct {
	t     *testing.T
	cmd   *exec.Cmd
	ended chan struct{}

	mu  sync.Mutex
	out bytes.Buffer // standard output and error
}

// Write implements io.Writer for what the program prints.
func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *program) printed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// run starts the provider. It is killed when the test ends.
func run(t *testing.T, url string, env ...string) *program {
	t.Helper()
	p := &program{t: t, ended: make(chan struct{})}
	p.cmd = exec.CommandContext(context.Background(), command[0], command[1:]...) //nolint:gosec // the flag names it
	p.cmd.Env = append(append(os.Environ(), "SKERRY_SERVER="+url, "SKERRY_KEY=", "SKERRY_SSH_KEY=", "SKERRY_CA=", "SKERRY_CERTIFICATE=", "SKERRY_CERTIFICATE_KEY="), env...)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	must(t, p.cmd.Start())
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // its code is in ProcessState
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		if t.Failed() || testing.Verbose() {
			t.Logf("the provider printed:\n%s", p.printed())
		}
	})
	return p
}

// drain asks the program to stop.
func (p *program) drain() {
	p.t.Helper()
	must(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
}

// code waits for the end of the program, and returns its exit code.
func (p *program) code() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("the program did not end within %s", patience)
	}
	return p.cmd.ProcessState.ExitCode()
}
