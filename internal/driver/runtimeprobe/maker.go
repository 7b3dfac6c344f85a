package runtimeprobe

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// LabelMaker says which process made the sandbox of a probe. Once that has ended nobody waits for the probe any more.
const LabelMaker = "io.skerry.runtime-probe-maker"

// world names this boot of this machine and the namespace in which processes have their numbers; "" when they
// cannot be told.
func world() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + "/" + ns
}

// maker is the value of LabelMaker for this process.
func maker() string { return fmt.Sprintf("%s/%d/%d", world(), os.Getpid(), started(os.Getpid())) }

// ended reports whether a maker is surely no more. Of one of another boot or namespace nobody knows.
func ended(maker string) bool {
	rest, ok := strings.CutPrefix(maker, world()+"/")
	pid, at, two := strings.Cut(rest, "/")
	if !ok || !two || world() == "" {
		return false
	}
	number, err := strconv.Atoi(pid)
	if err != nil {
		return false
	}
	start, err := strconv.ParseUint(at, 10, 64)
	return err == nil && start != 0 && started(number) != start
}

// started gives the start time of a process in clock ticks since boot, or 0 when there is none.
func started(pid int) uint64 {
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
