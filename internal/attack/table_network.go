package attack

// insideNetwork lists the attacks that look for a way out, and the ones that would make a way out.
func insideNetwork() []Attack {
	return []Attack{
		{
			Name: "metadata", Class: "ways out", What: "asks the metadata service of a cloud, 169.254.169.254",
			Refused: []string{"ENETUNREACH", "EHOSTUNREACH"}, Guards: []string{guardLoopback},
			Pod: map[string]string{"no answer": guardPolicy},
		},
		{
			Name: "tcp-out", Class: "ways out", What: "connects to an address of the internet",
			Refused: []string{"ENETUNREACH", "EHOSTUNREACH"}, Guards: []string{guardLoopback},
			Pod: map[string]string{"no answer": guardPolicy},
		},
		{
			Name: "ipv6-out", Class: "ways out", What: "connects to an IPv6 address of the internet",
			Refused: []string{"ENETUNREACH", "EHOSTUNREACH", "EADDRNOTAVAIL"}, Guards: []string{guardLoopback},
			Pod: map[string]string{"no answer": guardPolicy},
		},
		{
			Name: "dns", Class: "names", What: "asks a resolver for a name, which also carries data out",
			Refused: []string{"ENETUNREACH", "EHOSTUNREACH"}, Guards: []string{guardLoopback},
			Pod: map[string]string{"no answer": guardPolicy},
		},
		{
			Name: "host-loopback", Class: "services of the host", What: "connects to the server's own port on the host's loopback",
			Refused: []string{"ECONNREFUSED"}, Guards: []string{guardNet},
		},
		{
			Name: "host-abstract", Class: "services of the host", What: "connects to an abstract unix socket of the host",
			Refused: []string{"ECONNREFUSED"}, Guards: []string{guardNet},
		},
		{
			Name: "engine-socket", Class: "services of the host", What: "connects to the socket of Docker, containerd or podman",
			Refused: []string{"ENOENT", "EACCES"}, Guards: []string{guardNoSocket, guardNotRoot},
		},
		{
			Name: "packet-socket", Class: "raw packets", What: "makes a packet socket",
			Refused: []string{"EPERM", "EAFNOSUPPORT"}, Guards: []string{guardSeccomp, capability("NET_RAW")},
		},
		{
			Name: "raw-icmp", Class: "raw packets", What: "makes a raw socket",
			Refused: []string{"EPERM", "EACCES"}, Guards: []string{guardSeccomp, capability("NET_RAW")},
		},
		{
			Name: "raw-ipv6", Class: "raw packets", What: "makes a raw socket of IPv6",
			Refused: []string{"EPERM", "EACCES"}, Guards: []string{guardSeccomp, capability("NET_RAW")},
		},
		{
			Name: "vsock", Class: "other families", What: "makes a vsock, which leads to the hypervisor",
			Refused: []string{"EPERM", "EAFNOSUPPORT"}, Guards: []string{guardSeccomp},
			Absent: []string{"EAFNOSUPPORT"},
		},
		{
			Name: "alg-socket", Class: "other families", What: "makes a socket of the kernel's cryptography (AF_ALG)",
			Refused: []string{"EPERM", "EAFNOSUPPORT"}, Guards: []string{guardSeccomp},
			Absent: []string{"EAFNOSUPPORT"},
		},
		{
			Name: "xdp-socket", Class: "other families", What: "makes an XDP socket",
			Refused: []string{"EPERM", "EAFNOSUPPORT"}, Guards: []string{guardSeccomp, capability("NET_RAW")},
			Absent: []string{"EAFNOSUPPORT"},
		},
		{
			Name: "netlink-address", Class: "network settings", What: "adds an address to an interface by netlink",
			Refused: []string{"EPERM"}, Guards: []string{capability("NET_ADMIN")},
		},
		{
			Name: "link-down", Class: "network settings", What: "switches an interface off",
			Refused: []string{"EPERM"}, OwnKernel: []string{"ENOTTY"}, Guards: []string{capability("NET_ADMIN")},
		},
		{
			Name: "set-uid-program", Class: "privileges", What: "runs root's set-uid program that a careless restore left in the workspace",
			Refused: []string{"same uid", "EACCES", "EPERM"}, Guards: []string{guardNosuid, guardNoNewPrivs},
		},
		{
			Name: "file-capabilities", Class: "privileges", What: "runs a program whose file bears a capability",
			Refused: []string{"no capability", "EPERM"}, Guards: []string{guardNosuid, guardNoNewPrivs, guardBounding},
		},
		{
			Name: "become-root", Class: "privileges", What: "takes uid 0",
			Refused: []string{"EPERM"}, Guards: []string{capability("SETUID")},
		},
	}
}
