package subprocess

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// confine sets the limits of this process. The kernel enforces them, also when its server has died.
func confine() error {
	runtime.GOMAXPROCS(2) // one computes, the other collects garbage
	debug.SetMaxStack(maxStack)
	debug.SetMemoryLimit(maxMemory / 2)
	now, err := dataBytes()
	if err != nil {
		return err
	}
	for resource, limit := range map[int]uint64{
		unix.RLIMIT_CPU: maxProcessor, unix.RLIMIT_DATA: now + maxMemory, unix.RLIMIT_CORE: 0, unix.RLIMIT_FSIZE: 0,
	} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return err
		}
	}
	return nil
}

// dataBytes is what this process has of what RLIMIT_DATA counts: most of it is reserved and never used.
func dataBytes() (uint64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	var size, resident, shared, code, library, data uint64
	if _, err := fmt.Sscan(string(text), &size, &resident, &shared, &code, &library, &data); err != nil {
		return 0, fmt.Errorf("/proc/self/statm: %w", err)
	}
	return data * uint64(os.Getpagesize()), nil //nolint:gosec // a page has some bytes
}
