package hardening

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"os"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// CheckSources reports, as an Invalid error, the first missing host path of spec, named by its place in the
// sandbox. It also reports a daemon that this host cannot run. Engines tell of both late, and in words of
// their own.
func CheckSources(spec sandbox.Spec) error {
	if err := checkProgram(spec.Daemon); err != nil {
		return sandbox.Wrap(sandbox.Invalid, err, "the daemon of the sandbox is not a program for this host")
	}
	return CheckMounts(spec)
}

// CheckMounts is the part of CheckSources for a driver that has the daemon from elsewhere.
func CheckMounts(spec sandbox.Spec) error {
	for _, m := range spec.Mounts {
		if _, err := os.Stat(m.Source); err != nil {
			return sandbox.Wrap(sandbox.Invalid, err, "what is to be mounted at %s is not on this host", m.Target)
		}
	}
	return nil
}

// elfStart is as much of a program as tells its kind: magic, class, byte order, type and machine.
const elfStart = 20

// checkProgram compares a program with this one: both must be for the same kind of machine.
func checkProgram(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return errors.New("not an executable file")
	}
	theirs, err := readStart(path)
	if err != nil {
		return err
	}
	ours, err := readStart("/proc/self/exe")
	if err != nil {
		return err
	}
	// Bytes 4 and 5: class and byte order. 18 and 19: the machine.
	if !bytes.HasPrefix(theirs, []byte(elf.ELFMAG)) || !bytes.Equal(theirs[4:6], ours[4:6]) || !bytes.Equal(theirs[18:20], ours[18:20]) {
		return errors.New("not a program for this machine")
	}
	return nil
}

func readStart(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	start := make([]byte, elfStart)
	_, err = io.ReadFull(f, start)
	return start, err
}
