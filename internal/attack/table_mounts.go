package attack

// insideMounts lists the attacks on what paths lead to, on devices, cgroups and namespaces.
func insideMounts() []Attack {
	return []Attack{
		{
			Name: "mount-over", Class: "mounts", What: "mounts a file system over /etc",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp, capability("SYS_ADMIN")},
		},
		{
			Name: "remount-writable", Class: "mounts", What: "remounts the skills read-write",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp, capability("SYS_ADMIN")},
		},
		{
			Name: "mount-new-api", Class: "mounts", What: "mounts by fsopen, fsmount and move_mount, which old filters do not know",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp, capability("SYS_ADMIN")},
		},
		{
			Name: "pivot-root", Class: "another root", What: "makes /tmp the root by pivot_root",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp, capability("SYS_ADMIN")},
		},
		{
			Name: "chroot", Class: "another root", What: "makes /tmp the root by chroot",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp, capability("SYS_CHROOT")},
		},
		{
			Name: "unmount-cover", Class: "another root", What: "unmounts what covers a masked path",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp, capability("SYS_ADMIN")},
		},
		{
			Name: "release-agent", Class: "cgroups", What: "mounts a hierarchy of cgroups and writes `release_agent`, which the host would run",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp, capability("SYS_ADMIN"), guardCgroupNS, guardNotRoot},
			OnV1: []string{guardCgroupNS, guardNotRoot}, // cgroup v2 has no release_agent, and is mounted all the same
		},
		{
			Name: "cgroup-limit", Class: "cgroups", What: "lifts its own limits",
			Refused: []string{"EROFS", "EACCES"}, Guards: []string{guardROMounts, guardNotRoot},
			Absent: []string{"EPERM"}, // cgroup v2 with nsdelegate: not from within the namespace
		},
		{
			Name: "cgroup-child", Class: "cgroups", What: "makes a cgroup of its own, in which counts begin anew",
			Refused: []string{"EROFS", "EACCES"}, Guards: []string{guardROMounts, guardNotRoot},
		},
		{
			Name: "mknod-disk", Class: "devices", What: "makes a device node of a disk of the host",
			Refused: []string{"EPERM"}, Guards: []string{capability("MKNOD")},
		},
		{
			Name: "open-disk", Class: "devices", What: "opens a disk of the host through a node that a careless restore left in the workspace",
			Refused: []string{"EACCES", "EPERM"}, Guards: []string{guardNodev, guardDevices},
			Pod: map[string]string{"ENOENT": guardCopies},
		},
		{
			Name: "open-kmsg", Class: "devices", What: "opens `/dev/kmsg`, `/dev/mem`, `/dev/kmem`, `/dev/port`",
			Refused: []string{"ENOENT", "EACCES", "EPERM"}, Guards: []string{guardNoNodes, guardDevices, capability("SYSLOG")},
		},
		{
			Name: "unshare-user", Class: "namespaces", What: "becomes root in a user namespace by clone",
			Refused: []string{"EPERM"}, Guards: []string{guardSeccomp},
		},
		{
			Name: "clone3-user", Class: "namespaces", What: "becomes root in a user namespace by clone3, whose flags a filter cannot see",
			Refused: []string{"ENOSYS"}, Guards: []string{guardSeccomp, guardFilter},
		},
		{
			Name: "setns-host", Class: "namespaces", What: "joins the mount namespace of another process",
			Refused: []string{"EPERM", "EACCES"}, Guards: []string{guardSeccomp, guardPIDs, capability("SYS_ADMIN"), capability("SYS_CHROOT"), capability("SYS_PTRACE")},
		},
	}
}
