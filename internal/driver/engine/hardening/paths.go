package hardening

import (
	"path/filepath"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// MaskedPaths cannot be read in a sandbox: they tell about the host or about other sandboxes.
// Docker's default list, /proc/key-users, and what names the machine: a cloud puts the instance's id there.
// A path that the kernel lacks is skipped.
func MaskedPaths() []string { return maskedPaths("/sys") }

// maskedPaths looks for the processors' folders in sys, as their number differs between hosts.
func maskedPaths(sys string) []string {
	masked := []string{
		"/proc/acpi",
		"/proc/asound",
		"/proc/interrupts",
		"/proc/kcore",
		"/proc/key-users",
		"/proc/keys",
		"/proc/latency_stats",
		"/proc/sched_debug",
		"/proc/scsi",
		"/proc/timer_list",
		"/proc/timer_stats",
		"/sys/devices/virtual/dmi",
		"/sys/devices/virtual/powercap",
		"/sys/firmware",
		"/sys/hypervisor",
	}
	// The counts of overheating tell what other sandboxes compute. Newer Docker engines mask them, too.
	throttled, err := filepath.Glob(sys + "/devices/system/cpu/cpu*/thermal_throttle")
	if err != nil {
		return masked // cannot be: the pattern is right
	}
	for _, dir := range throttled {
		masked = append(masked, "/sys"+strings.TrimPrefix(dir, sys))
	}
	return masked
}

// ReadonlyPaths can be read but not written: Docker's default, and /dev itself, which a runtime mounts
// the mode that the folder has in the image. Devices in it can be written as ever.
func ReadonlyPaths() []string {
	return []string{"/dev", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

// Devices are the only device nodes of a sandbox, besides pseudo terminals.
func Devices() []string {
	return []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}
}

// MountPoints are the folders that an image needs so that a sandbox can be assembled on it.
func MountPoints() []string {
	return []string{
		"/proc", "/dev", "/sys", "/tmp", "/etc",
		sandbox.HomeDir, sandbox.UserDataDir, sandbox.SkillsDir, sandbox.PluginsDir, sandbox.CodeAPIDir, sandbox.RunDir,
	}
}

// Environment is what PID 1 of a sandbox starts with. No variable of the server is ever in it.
func Environment() []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + sandbox.HomeDir,
		"LANG=C.UTF-8",
	}
}
