// Package procid names processes of this machine for good: a pid alone is used again.
package procid

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Process is a process of this boot, in this namespace of pids.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since boot
}

// This is the process that asks.
func This() Process { return Of(os.Getpid()) }

// Of names the process that has a pid now. Start is 0 when there is none.
func Of(pid int) Process { return Process{PID: pid, Start: startTicks(pid)} }

// Alive reports whether the process is there.
func (p Process) Alive() bool {
	start := startTicks(p.PID)
	return start != 0 && start == p.Start
}

// startTicks returns the start time of a process in clock ticks since boot, or 0 when there is none.
func startTicks(pid int) uint64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The second field is the program's name in brackets and may hold anything; the 22nd is ours.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 20 {
		return 0
	}
	ticks, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return 0
	}
	return ticks
}
