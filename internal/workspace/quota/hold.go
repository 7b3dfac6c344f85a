package quota

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Hold calls write so that quotas apply to it, although this process is root: ext4 lets processes with
// CAP_SYS_RESOURCE exceed every limit. write must wait only for the disk.
func Hold(write func() error) error {
	const bit = uint32(1) << unix.CAP_SYS_RESOURCE
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	runtime.LockOSThread()
	if err := unix.Capget(&head, &have[0]); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("read capabilities: %w", err)
	}
	if have[0].Effective&bit == 0 {
		defer runtime.UnlockOSThread()
		return write()
	}
	less := have
	less[0].Effective &^= bit
	if err := unix.Capset(&head, &less[0]); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("put down a capability: %w", err)
	}
	defer func() {
		// A thread that cannot take it up again stays locked, and so ends with its goroutine.
		if unix.Capset(&head, &have[0]) == nil {
			runtime.UnlockOSThread()
		}
	}()
	return write()
}
