package hardening

// A sandbox has a user namespace of its own where the driver can make one. It has two host uids. The
// sandbox's uid keeps its number, so files need no change of owner. A uid that owns nothing stands for root,
// which the runtime is while it sets the sandbox up. All others, the host's root first, are the user
// "nobody": what breaks out of the sandbox's walls has no uid, and no capability, of the host.

// IDMapping maps one uid (and the gid of the same number).
type IDMapping struct {
	Inside, Host uint32
}

// rootBit is what tells a sandbox's root from the sandbox's uid: far above every uid that a host assigns.
const rootBit = 1 << 30

// IDMappings are those of the sandbox that runs as uid.
func IDMappings(uid int) []IDMapping {
	own := uint32(uid) //nolint:gosec // CheckSpec bounds it by MaxUID
	root := own ^ rootBit
	if root == 0 {
		root = 2 * rootBit
	}
	return []IDMapping{{Inside: 0, Host: root}, {Inside: own, Host: own}}
}

// TerminalGroup is the group of a sandbox's pseudo terminals: the usual one of programs that look for it, or
// the sandbox's own where its user namespace has no other.
func TerminalGroup(uid int, userNamespace bool) int {
	if userNamespace {
		return uid
	}
	return 5
}
