package attack

// insideFiles lists the attacks on files of the host and of the house.
func insideFiles() []Attack {
	return []Attack{
		{
			Name: "symlink-to-host", Class: "links", What: "reads a file of the host through a link in the workspace",
			Refused: []string{"ENOENT"}, Guards: []string{guardRoot},
		},
		{
			Name: "hardlink-of-root", Class: "links", What: "makes a hard link to root's file, to own it when the workspace is next given to its uid",
			Refused: []string{"EPERM", "EACCES"}, Guards: []string{capability("FOWNER")},
			Pod: map[string]string{"ENOENT": guardCopies},
		},
		{
			Name: "rename-mount-target", Class: "links", What: "puts a link to /etc in the place of a folder that is mounted or written next",
			Refused: []string{"EACCES", "EPERM", "EBUSY"}, Guards: []string{guardOwner},
			Pod: map[string]string{"EROFS": guardRORoot},
		},
		{
			Name: "proc-root", Class: "other roots in /proc", What: "reads a file of the host below `/proc/*/root`",
			Refused: []string{"EACCES", "ENOENT"}, Guards: []string{guardPIDs, capability("SYS_PTRACE")},
		},
		{
			Name: "proc-cwd", Class: "other roots in /proc", What: "reads a file of the host above `/proc/*/cwd`",
			Refused: []string{"EACCES", "ENOENT"}, Guards: []string{guardPIDs, capability("SYS_PTRACE")},
		},
		{
			Name: "pid1-environ", Class: "/proc of PID 1", What: "reads the environment of PID 1",
			Refused: []string{"EACCES", "EPERM"}, Guards: []string{guardDumpable},
		},
		{
			Name: "pid1-mem", Class: "/proc of PID 1", What: "opens the memory of PID 1 for writing",
			Refused: []string{"EACCES", "EPERM"}, Guards: []string{guardDumpable},
		},
		{
			Name: "pid1-fd", Class: "/proc of PID 1", What: "opens what PID 1 has open",
			Refused: []string{"EACCES", "EPERM"}, Guards: []string{guardDumpable},
		},
		{
			Name: "leaked-folder", Class: "leaked descriptors", What: "reads a file of the host through an inherited descriptor or working folder (CVE-2024-21626)",
			Refused: []string{"no such descriptor"}, Guards: []string{guardDescriptors},
		},
		{
			Name: "leaked-socket", Class: "leaked descriptors", What: "uses an inherited socket of sandboxd or of the runtime",
			Refused: []string{"no such descriptor"}, Guards: []string{guardDescriptors},
		},
		{
			Name: "write-root", Class: "read-only places", What: "plants a program in the root file system",
			Refused: []string{"EROFS", "EACCES"}, Guards: []string{guardRORoot, guardNotRoot},
		},
		{
			Name: "write-skills", Class: "read-only places", What: "plants a file among the skills",
			Refused: []string{"EROFS", "EACCES"}, Guards: []string{guardROMounts, guardNotRoot},
		},
		{
			Name: "write-daemon", Class: "read-only places", What: "overwrites the program that is PID 1, also through `/proc/1/exe` (CVE-2019-5736)",
			Refused: []string{"EROFS", "EACCES", "ETXTBSY"}, Guards: []string{guardROMounts, guardNotRoot},
		},
		{
			Name: "own-sockets", Class: "sockets of the server", What: "moves the sockets away that lead to the server",
			Refused: []string{"EROFS", "EACCES"}, Guards: []string{guardROMounts, guardNotRoot},
		},
		{
			Name: "watch-image", Class: "watching neighbours", What: "sees by inotify that another tenant opens a program of the image",
			Refused: []string{"nothing is seen"}, Guards: []string{guardInodes},
		},
		{
			Name: "watch-skills", Class: "watching neighbours", What: "sees by inotify that another tenant opens a file of a public skill",
			Refused: []string{"nothing is seen"}, Guards: []string{guardInodes},
		},
		{
			Name: "lock-image", Class: "locks of neighbours", What: "finds the lock that another tenant holds by flock on a program of the image",
			Refused: []string{"no lock is found"}, Guards: []string{guardInodes},
		},
		{
			Name: "lock-skills", Class: "locks of neighbours", What: "finds the lock that another tenant holds by flock on a file of a public skill",
			Refused: []string{"no lock is found"}, Guards: []string{guardInodes},
		},
		{
			Name: "shocker", Class: "file handles", What: "opens a file of the host by its handle (\"shocker\")",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp, capability("DAC_READ_SEARCH")},
		},
		{
			Name: "name-to-handle", Class: "file handles", What: "learns what handles of the host's file system look like",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp},
		},
	}
}
