package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/attack/wire"
	"github.com/skerry-sandbox/skerry/internal/sandboxd/filter"
)

// modes are what the program does besides attempts.
var modes = map[string]func(args []string) error{
	"control":  control,
	"confined": confined,
	"run":      runAttempt,
	"sibling":  sibling,
	"victim":   victim,
	"outside":  outside,
	"idle":     idle,
	"crash":    crash,
	"whoami":   whoami,
	"call32":   ownPIDBy32,
}

// Facts that tell the PID 1 of a control which guards of sandboxd it does without.
const (
	withoutFilter   = "without-filter"
	withoutDumpable = "without-dumpable" // not the state, the guard
)

const controlTimeout = 30 * time.Second

// control is PID 1 of a container in which a guard is missing: like sandboxd in what guards it, but it makes
// one attempt and ends.
func control(args []string) error {
	if len(args) < 1 {
		return errors.New("no attempt is named")
	}
	facts, err := wire.ParseFacts(args[1:])
	if err != nil {
		return err
	}
	signal.Notify(make(chan os.Signal, 1)) // sandboxd takes every signal, too
	if facts[withoutDumpable] == "" {
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
			return fmt.Errorf("non-dumpable: %w", err)
		}
	}
	other := exec.Command("/proc/self/exe", "sibling")
	if err := other.Start(); err != nil {
		return err
	}
	mode := "confined"
	if facts[withoutFilter] != "" {
		mode = "run"
	}
	var out, complaints bytes.Buffer
	cmd := exec.Command("/proc/self/exe", append([]string{mode}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &complaints
	cmd.WaitDelay = time.Second
	cmd.ExtraFiles = passedOn()
	if err := cmd.Start(); err != nil {
		return err
	}
	late := time.AfterFunc(controlTimeout, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	err = cmd.Wait()
	os.Stdout.Write(out.Bytes())        //nolint:errcheck // no other reader is left
	os.Stderr.Write(complaints.Bytes()) //nolint:errcheck // as above
	return err
}

// passedOn returns what this program was started with besides its three streams, as a runtime or a daemon that
// forgets to close would.
func passedOn() []*os.File {
	var files []*os.File
	for fd := 3; fd < maxFD; fd++ {
		if !isPassedOn(fd) {
			continue
		}
		for len(files) < fd-3 {
			files = append(files, nil)
		}
		files = append(files, os.NewFile(uintptr(fd), "inherited"))
	}
	return files
}

// isPassedOn reports whether a descriptor is a folder or a socket that this program did not open itself.
func isPassedOn(fd int) bool {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return false
	}
	kind := st.Mode & unix.S_IFMT
	return kind == unix.S_IFDIR || kind == unix.S_IFSOCK
}

// confined is the supervisor of an attempt: it is under the filter that sandboxd puts every exec under.
func confined(args []string) error {
	if err := filter.Install(os.Getpid(), false); err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe", append([]string{"run"}, args...)...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdout, os.Stderr, passedOn()
	return cmd.Run()
}
