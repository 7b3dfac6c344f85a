package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/skerry-sandbox/skerry/internal/attack/wire"
)

// privilegeAttempts try to become more than the code is.
var privilegeAttempts = map[string]attempt{
	"set-uid-program":   setUIDProgram,
	"file-capabilities": fileCapabilities,
	"become-root":       becomeRoot,
}

// whoami says the effective uid and capabilities of a program that is run.
func whoami([]string) error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	caps := "?"
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "CapEff:"); ok {
			caps = strings.TrimSpace(rest)
		}
	}
	_, err = fmt.Fprintf(os.Stdout, "%d %s\n", os.Geteuid(), caps)
	return err
}

func asks(program string) (uid int, caps uint64, err error) {
	var out bytes.Buffer
	cmd := exec.Command(program, "whoami")
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		return 0, 0, err
	}
	if _, err := fmt.Sscanf(out.String(), "%d %x", &uid, &caps); err != nil {
		return 0, 0, broken("answer "+strconv.Quote(out.String()), err)
	}
	return uid, caps, nil
}

// setUIDProgram runs a setuid program of root.
func setUIDProgram(wire.Facts) (string, error) {
	uid, _, err := asks(workspace + "/set-uid")
	if err != nil {
		return "", err
	}
	if uid != 0 {
		return "", refusal("same uid")
	}
	return "runs as root", nil
}

// fileCapabilities runs a program whose file bears a capability.
func fileCapabilities(wire.Facts) (string, error) {
	_, caps, err := asks(workspace + "/capable")
	if err != nil {
		return "", err
	}
	if caps == 0 {
		return "", refusal("no capability")
	}
	return fmt.Sprintf("has the capabilities %x", caps), nil
}

func becomeRoot(wire.Facts) (string, error) { return "is root", syscall.Setresuid(0, 0, 0) }
