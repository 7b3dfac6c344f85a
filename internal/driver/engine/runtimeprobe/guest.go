package runtimeprobe

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
)

// guestTimeout bounds each step inside. The host waits for less, and removes the sandbox then.
const guestTimeout = 5 * time.Second

// Main is the probe inside the sandbox. It returns an exit status, if the memory limit lets it live.
func Main() int {
	if err := guest(); err != nil {
		fmt.Fprintln(os.Stderr, "runtime-probe:", err)
		return 1
	}
	return 0
}

func guest() error {
	listener, err := net.Listen("unix", guestPath(guestSocket))
	if err != nil {
		return err
	}
	defer listener.Close() //nolint:errcheck // the process ends
	if err := listener.(*net.UnixListener).SetDeadline(time.Now().Add(guestTimeout)); err != nil {
		return err
	}
	found := report{Seccomp: control(unix.PR_GET_SECCOMP), NoNewPrivs: control(unix.PR_GET_NO_NEW_PRIVS)}
	if err := greet(guestPath(hostSocket)); err != nil {
		found.HostSocket = err.Error()
	}
	if err := writeReport(found); err != nil {
		return err
	}
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	if err := answer(conn); err != nil {
		return err
	}
	takeMemory()
	return os.WriteFile(guestPath(survivedFile), nil, 0o600)
}

func writeReport(found report) error {
	data, err := json.Marshal(found)
	if err != nil {
		return err
	}
	// Written aside and renamed: the host reads it the moment it is there.
	return lockedfile.Swap(guestPath(reportFile), data, 0o600)
}

// takeMemory fills memory far beyond the limit, page by page.
func takeMemory() {
	const step = 4 << 20
	var held [][]byte
	for taken := 0; taken < memoryTaken; taken += step {
		block := make([]byte, step)
		for i := 0; i < len(block); i += 4096 {
			block[i] = 1
		}
		held = append(held, block)
	}
	for _, block := range held {
		block[0]++ // keeps every block in use until the last one is filled
	}
}

// control returns one property of this process from the kernel, or -1.
func control(option int) int {
	value, err := unix.PrctlRetInt(option, 0, 0, 0, 0)
	if err != nil {
		return -1
	}
	return value
}

// greet dials a unix socket and exchanges the word.
func greet(path string) error {
	conn, err := net.DialTimeout("unix", path, guestTimeout)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // the exchange is over
	if err := conn.SetDeadline(time.Now().Add(guestTimeout)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte(word)); err != nil {
		return err
	}
	return hear(conn)
}

// answer is the other side of greet.
func answer(conn net.Conn) error {
	defer conn.Close() //nolint:errcheck // the exchange is over
	if err := conn.SetDeadline(time.Now().Add(guestTimeout)); err != nil {
		return err
	}
	if err := hear(conn); err != nil {
		return err
	}
	_, err := conn.Write([]byte(word))
	return err
}

func hear(conn net.Conn) error {
	got := make([]byte, len(word))
	for n := 0; n < len(got); {
		m, err := conn.Read(got[n:])
		if err != nil {
			return err
		}
		n += m
	}
	if string(got) != word {
		return fmt.Errorf("heard %q", got)
	}
	return nil
}
