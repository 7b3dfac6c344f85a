package replica

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// child makes this program a replica that lives until its standard input ends.
const child = "SKERRY_REPLICA_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(child); dir != "" {
		r, err := Join(dir)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(r.ID(), r.Slot())
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func join(t *testing.T, dir string) *Replica {
	t.Helper()
	r, err := Join(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Leave() })
	return r
}

// spawn starts another process that joins, and returns its id.
func spawn(t *testing.T, dir string) (cmd *exec.Cmd, id string) {
	t.Helper()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), child+"="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return cmd, strings.Fields(line)[0]
}

// TestSlots: processes get slots of their own, and a slot that was given free is used again with another id.
func TestSlots(t *testing.T) {
	dir := t.TempDir()
	a, b := join(t, dir), join(t, dir)
	if a.ID() == b.ID() || a.Slot() != 1 || b.Slot() != 2 {
		t.Fatalf("%+v, %+v", a.info, b.info)
	}
	if err := b.SetAddress("127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	peers, err := a.Peers()
	if err != nil || len(peers) != 1 || peers[0].ID != b.ID() || peers[0].Address != "127.0.0.1:1" {
		t.Errorf("peers %+v, %v", peers, err)
	}
	if !a.Alive(a.ID()) || !a.Alive(b.ID()) || a.Alive("r0") {
		t.Error("who lives is not known")
	}
	if err := a.Leave(); err != nil {
		t.Fatal(err)
	}
	if b.Alive(a.ID()) {
		t.Error("one that left is alive")
	}
	c := join(t, dir)
	if c.Slot() != 1 || b.Alive(a.ID()) || !b.Alive(c.ID()) {
		t.Errorf("%+v", c.info)
	}
}

// TestKilled: a killed process is seen as dead at once, a stopped one is not, and it is buried once.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	a := join(t, dir)
	cmd, id := spawn(t, dir)
	if !a.Alive(id) {
		t.Fatal("the other process is not alive")
	}
	none := func(dead Info) error { return fmt.Errorf("%s is buried alive", dead.ID) }
	if err := a.Settle(none); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if a.Alive(id) {
		t.Error("a killed process is alive")
	}
	if _, err := a.Dial(t.Context(), id); !errors.Is(err, ErrGone) {
		t.Errorf("dial a dead one: %v", err)
	}
	fails := errors.New("not yet")
	if err := a.Settle(func(Info) error { return fails }); !errors.Is(err, fails) {
		t.Errorf("discard: %v", err)
	}
	buried := 0
	for range 2 {
		if err := a.Settle(func(dead Info) error {
			buried++
			if dead.ID != id || dead.Slot != 2 {
				t.Errorf("buried %+v", dead)
			}
			if _, other := spawn(t, dir); !a.Alive(other) {
				t.Error("a new process while one is buried is not alive")
			}
			if peers, err := a.Peers(); err != nil || len(peers) != 1 && peers[len(peers)-1].Slot != 3 {
				t.Errorf("a new process took the slot that is being buried: %+v, %v", peers, err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if buried != 1 {
		t.Errorf("buried %d times", buried)
	}
}

// TestSocket: replicas reach each other, also by a path that is too long for a socket's address.
func TestSocket(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	a, b := join(t, dir), join(t, dir)
	ln, err := b.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	info, err := os.Stat(filepath.Join(dir, "2", socketName))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	c, err := a.Dial(t.Context(), b.ID())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := ln.(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	s, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
}

func TestFull(t *testing.T) {
	dir := t.TempDir()
	for range MaxSlots {
		join(t, dir)
	}
	if _, err := Join(dir); !errors.Is(err, ErrFull) {
		t.Errorf("one more: %v", err)
	}
}
