package subprocess

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// hostile is a function that does what a parser may do to its process.
var hostile = New("hostile", func(what string) (string, error) {
	switch what {
	case "deep":
		return fmt.Sprint(down(1 << 40)), nil
	case "large":
		var all [][]byte
		for range 4 * maxMemory >> 20 {
			page := make([]byte, 1<<20)
			for i := 0; i < len(page); i += 4096 {
				page[i] = 1
			}
			all = append(all, page)
		}
		return fmt.Sprint(len(all)), nil
	case "exit":
		os.Exit(3)
	case "forever":
		select {}
	case "loud":
		_, _ = os.Stderr.WriteString(strings.Repeat("x", 1<<20))
		panic("loud")
	case "writes":
		return "", os.WriteFile("/tmp/skerry-subprocess", []byte("x"), 0o600)
	case "refuses":
		return "half", errors.New("no such thing")
	}
	return strings.ToUpper(what), nil
})

func down(n int) int {
	var room [64]int
	if n == 0 {
		return room[n]
	}
	return down(n-1) + 1
}

// limits is a function that tells what the process has.
var limits = New("limits", func(struct{}) (map[string]uint64, error) {
	found := map[string]uint64{"environment": uint64(len(os.Environ()))}
	for name, resource := range map[string]int{"processor": unix.RLIMIT_CPU, "core": unix.RLIMIT_CORE, "data": unix.RLIMIT_DATA} {
		var l unix.Rlimit
		if err := unix.Getrlimit(resource, &l); err != nil {
			return nil, err
		}
		found[name] = l.Max
	}
	found["stack"] = uint64(debug.SetMaxStack(1 << 20)) //nolint:gosec // a size
	return found, nil
})

// TestNothingEndsTheCaller: what would end a program ends the process alone, and the next call is served.
func TestNothingEndsTheCaller(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"deep", "large", "exit", "loud"} {
		_, err := hostile.Call(t.Context(), what)
		var refused *Error
		if !errors.As(err, &refused) || !strings.Contains(refused.Why, "nested too deeply") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if out, err := hostile.Call(t.Context(), "abc"); err != nil || out != "ABC" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestRefusal(t *testing.T) {
	t.Parallel()
	out, err := hostile.Call(t.Context(), "refuses")
	var refused *Error
	if !errors.As(err, &refused) || refused.Why != "no such thing" || out != "" {
		t.Errorf("%q, %v", out, err)
	}
	if _, err = hostile.Call(t.Context(), "writes"); err == nil {
		t.Error("it writes files")
	}
}

// TestCallEndsWithItsCaller: a client that leaves ends the work that was for it.
func TestCallEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the client left")
	done := make(chan error, 1)
	go func() {
		_, err := hostile.Call(ctx, "forever")
		done <- err
	}()
	cancel(gone)
	if err := <-done; !errors.Is(err, gone) {
		t.Error(err)
	}
}

func TestLimitsAreInForce(t *testing.T) {
	t.Parallel()
	found, err := limits.Call(t.Context(), struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	if found["processor"] != maxProcessor || found["core"] != 0 || found["stack"] != maxStack || found["environment"] != 0 {
		t.Errorf("%v", found)
	}
	if found["data"] < maxMemory || found["data"] > 1<<62 {
		t.Errorf("memory: %d", found["data"])
	}
}

// fromFile is a function that reads the file it is given, and what else it can find.
var fromFile = New("file", func(secret string) (string, error) {
	text, err := os.ReadFile(given)
	for fd := range 64 {
		if target, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err == nil && target == secret {
			return "", errors.New("a file of the server is open")
		}
	}
	return string(text), err
})

func TestFilesAreThoseThatAreGiven(t *testing.T) {
	t.Parallel()
	var open []*os.File
	for _, name := range []string{"given", "secret"} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close() //nolint:errcheck // only read
		open = append(open, f)
	}
	if text, err := fromFile.call(t.Context(), open[1].Name(), open[0]); err != nil || text != "given" {
		t.Errorf("%q, %v", text, err)
	}
}

func BenchmarkCall(b *testing.B) {
	for b.Loop() {
		if _, err := hostile.Call(b.Context(), "abc"); err != nil {
			b.Fatal(err)
		}
	}
}
