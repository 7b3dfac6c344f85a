package attack

// insideKernel lists the attacks on the kernel and on what steers the host.
func insideKernel() []Attack {
	return []Attack{
		{
			Name: "add-key", Class: "kernel keyring", What: "puts a key where all processes of its uid find it",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp},
		},
		{
			Name: "session-keyring", Class: "kernel keyring", What: "looks into the keyring that the runtime left it",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp},
		},
		{
			Name: "bpf-map", Class: "programs in the kernel", What: "makes a BPF map",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp, capability("BPF")},
		},
		{
			Name: "bpf-program", Class: "programs in the kernel", What: "loads a BPF program",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp, capability("BPF")},
		},
		{
			Name: "perf-event", Class: "programs in the kernel", What: "counts what all processes of the host do (perf_event_open)",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp, capability("PERFMON")},
			Absent: []string{"EACCES"}, // kernel.perf_event_paranoid=3 of Debian
		},
		{
			Name: "userfaultfd", Class: "kernel that agents do not need", What: "holds page faults up (userfaultfd), as exploits of races do",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp},
		},
		{
			Name: "io-uring", Class: "kernel that agents do not need", What: "makes an io_uring, whose calls no filter sees",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp},
		},
		{
			Name: "fanotify", Class: "kernel that agents do not need", What: "watches a file system (fanotify)",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp},
		},
		{
			Name: "core-pattern", Class: "kernel settings", What: "writes `core_pattern`, which has the host run a program",
			Refused: []string{"EROFS", "EACCES"}, OwnKernel: []string{"ENOENT"}, Guards: []string{guardReadonly, guardNotRoot},
		},
		{
			Name: "sysctl", Class: "kernel settings", What: "writes `/proc/sys/vm/swappiness`",
			Refused: []string{"EROFS", "EACCES"}, OwnKernel: []string{"ENOENT"}, Guards: []string{guardReadonly, guardNotRoot},
		},
		{
			Name: "sysrq", Class: "kernel settings", What: "writes `/proc/sysrq-trigger`",
			Refused: []string{"EROFS", "EACCES", "ENOENT"}, Guards: []string{guardReadonly, guardNotRoot},
			Absent: []string{"ENOENT"},
		},
		{
			Name: "read-keys", Class: "what the kernel tells", What: "reads `/proc/keys`",
			Refused: []string{"EACCES", "empty"}, OwnKernel: []string{"ENOENT"}, Guards: []string{guardMasks},
		},
		{
			Name: "read-timers", Class: "what the kernel tells", What: "reads `/proc/timer_list`",
			Refused: []string{"EACCES", "empty"}, OwnKernel: []string{"ENOENT"}, Guards: []string{guardMasks, guardNotRoot},
		},
		{
			Name: "read-kcore", Class: "what the kernel tells", What: "reads the kernel's memory in `/proc/kcore`",
			Refused: []string{"EACCES", "empty", "ENOENT"}, Guards: []string{guardMasks, guardNotRoot, capability("SYS_RAWIO")},
			Absent: []string{"ENOENT"},
		},
		{
			Name: "kernel-log", Class: "what the kernel tells", What: "reads the kernel's log",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp, capability("SYSLOG")},
		},
		{
			Name: "settimeofday", Class: "clocks", What: "sets the host's clock by settimeofday",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp, capability("SYS_TIME")},
		},
		{
			Name: "clock-settime", Class: "clocks", What: "sets the host's clock by clock_settime",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp, capability("SYS_TIME")},
		},
		{
			Name: "adjtimex", Class: "clocks", What: "makes the host's clock run faster",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp, capability("SYS_TIME")},
		},
		{
			Name: "reboot", Class: "the machine", What: "restarts the machine",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp, capability("SYS_BOOT")},
		},
		{
			Name: "swapon", Class: "the machine", What: "has the kernel swap to a file of its own",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp, capability("SYS_ADMIN")},
		},
		{
			Name: "load-module", Class: "the machine", What: "loads a kernel module",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp, capability("SYS_MODULE")},
			Absent: []string{"ENOSYS"},
		},
		{
			Name: "kexec", Class: "the machine", What: "sets which kernel starts next",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp, capability("SYS_BOOT")},
			Absent: []string{"ENOSYS"},
		},
		{
			Name: "sethostname", Class: "settings of the host", What: "sets another host name",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp, capability("SYS_ADMIN")},
		},
		{
			Name: "accounting", Class: "settings of the host", What: "switches the host's process accounting",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp, capability("SYS_PACCT")},
		},
		{
			Name: "quotactl", Class: "settings of the host", What: "commands the host's quotas",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp},
		},
		{
			Name: "personality", Class: "other kinds of programs", What: "has programs loaded at addresses that are known",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp},
		},
		{
			Name: "modify-ldt", Class: "other kinds of programs", What: "uses the table of segments (modify_ldt)",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp},
			Absent: []string{"ENOSYS"},
		},
		{
			Name: "int80", Class: "other kinds of programs", What: "makes calls under the numbers of 32-bit programs, past a filter of numbers",
			Refused: []string{"EPERM", "ENOSYS", "killed by SIGSYS", "its thread is ended"}, Guards: []string{guardSeccomp, guardFilter},
			Absent: []string{"ENOSYS", "killed by SIGSEGV"},
		},
	}
}
