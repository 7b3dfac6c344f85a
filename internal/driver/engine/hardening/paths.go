package hardening

import "github.com/skerry-sandbox/skerry/internal/sandbox"

// MaskedPaths cannot be read in a sandbox: they tell about the host or about other sandboxes.
// Docker's default list and /proc/key-users. A path that the kernel lacks is skipped.
func MaskedPaths() []string {
	return []string{
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
		"/sys/devices/virtual/powercap",
		"/sys/firmware",
	}
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
