package runtimeprobe

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/procid"
)

// LabelMaker says which process made the sandbox of a probe. Once that has ended the probe is not waited for any more.
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
func maker() string { return name(procid.This()) }

func name(p procid.Process) string { return fmt.Sprintf("%s/%d/%d", world(), p.PID, p.Start) }

// ended reports whether a maker has surely ended. Of a maker of another boot or namespace it is unknown.
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
	return err == nil && start != 0 && !procid.Process{PID: number, Start: start}.Alive()
}
