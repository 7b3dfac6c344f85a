// Package oci starts sandboxes with an OCI runtime directly, without a container engine: runc, or
// runsc (gVisor). The root file system is an unpacked image, read-only and shared by all its
// sandboxes, or the host's own /usr. Under runc each sandbox sees it through overlays of its own.
//
// On disk, under Options.Root:
//
//	bundles/<id>/   config.json for the runtime, record.json for us, pid, small files of /etc
//	runc/ runsc/    the runtimes' own state (--root)
//	roots/          overlays of sandboxes that are about to start, see overlay.go
//	empty/          an empty folder, which each overlay needs
//	host/           skeleton of the root file system made of the host's /usr
//	probe/          scratch folder of the runtime probe
//
// A bundle is there exactly as long as its sandbox: it is renamed into place whole before the
// runtime starts, and it is the last thing that Remove takes away. So a server that finds the folder, also a
// server that was started after a crash, finds every sandbox and every half-made one. Containers are
// detached and have no parent of ours: they outlive the server, and their exit code is not known.
//
// Locks: Driver.hostRoot serialises changes of the host's skeleton, imagePreparer.mu those of unpacked
// images; the second is taken while the first is held. The lock of one sandbox (package idlock) is taken
// before both.
package oci
