package attack

// insideProcesses lists the attacks on other processes: PID 1, another exec, the neighbour's.
func insideProcesses() []Attack {
	return []Attack{
		{
			Name: "ptrace-pid1", Class: "other memory", What: "takes PID 1 over with ptrace",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp, guardFilter, guardDumpable},
		},
		{
			Name: "vm-read-sibling", Class: "other memory", What: "reads the memory of another exec of its sandbox",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp, guardFilter},
		},
		{
			Name: "pidfd-getfd-pid1", Class: "other memory", What: "takes a descriptor out of PID 1",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp, guardFilter, guardDumpable},
		},
		{
			Name: "kill-pid1", Class: "signals at PID 1", What: "sends every signal to PID 1",
			Refused: []string{"EPERM"}, Guards: []string{guardFilter},
		},
		{
			Name: "sigqueue-pid1", Class: "signals at PID 1", What: "sends PID 1 signals with a forged cause, and by a pidfd",
			Refused: []string{"EPERM"}, Guards: []string{guardFilter},
		},
		{
			Name: "prlimit-pid1", Class: "signals at PID 1", What: "takes PID 1 its open files with prlimit",
			Refused: []string{"EPERM"}, Guards: []string{guardFilter},
		},
		{
			Name: "terminal-sibling", Class: "terminals", What: "types into the terminal of another exec (TIOCSTI)",
			Refused: []string{"EPERM", "EIO", "ENOTTY"}, Guards: []string{capability("SYS_ADMIN")},
		},
		{
			Name: "core-dump", Class: "core dumps", What: "has its memory, secrets and all, written to a file when it crashes",
			Refused: []string{"EPERM", "no core"}, Guards: []string{guardSeccomp, guardCoreLimit},
		},
		{
			Name: "neighbour-workspace", Class: "neighbour's files", What: "reads a file of another thread by the host's path",
			Refused: []string{"ENOENT"}, Guards: []string{guardRoot, guardUID},
		},
		{
			Name: "neighbour-shm", Class: "neighbour's files", What: "reads the shared memory of another sandbox",
			Refused: []string{"ENOENT"}, Guards: []string{guardIPC, guardUID},
		},
		{
			Name: "become-neighbour", Class: "neighbour's files", What: "takes the uid of another workspace (EINVAL: there is no such uid in its user namespace)",
			Refused: []string{"EPERM", "EINVAL"}, Guards: []string{capability("SETUID")},
		},
		{
			Name: "neighbour-process", Class: "neighbour's processes", What: "finds a process of another sandbox and signals it",
			Refused: []string{"no such process"}, Guards: []string{guardPIDs, guardUID},
		},
		{
			Name: "neighbour-port", Class: "neighbour's processes", What: "connects to a port on which another sandbox listens",
			Refused: []string{"ECONNREFUSED"}, Guards: []string{guardNet},
		},
		{
			Name: "neighbour-abstract", Class: "neighbour's processes", What: "connects to an abstract unix socket of another sandbox",
			Refused: []string{"ECONNREFUSED"}, Guards: []string{guardNet},
		},
	}
}
