package doctor

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Space that a data folder should have free, in bytes, and the share of its inodes.
const (
	littleSpace = 2 << 30
	noSpace     = 64 << 20
	fewInodes   = 50 // of which at least one must be free
)

// Folder looks at a data folder, which need not be there yet.
func Folder(r *Report, dir string) {
	at, info, err := nearest(dir)
	if err != nil {
		r.Problem("", "mend that folder, or choose another one with --data", "%s cannot be reached: %s", dir, reason(err))
		return
	}
	if !info.IsDir() {
		r.Problem("", "move that file away, or choose another folder with --data", "%s is no folder", at)
		return
	}
	if unix.Access(at, unix.W_OK|unix.X_OK) != nil {
		r.Problem("", "mount it for writing, or choose another folder with --data", "%s cannot be written", at)
	}
	if at != dir {
		r.OK("", "%s is not there yet; `skerry serve` makes it", dir)
	} else {
		owner(r, dir, info)
		passage(r, dir)
	}
	space(r, at)
}

// nearest gives the folder itself, or the nearest above it that is there.
func nearest(dir string) (string, fs.FileInfo, error) {
	for {
		info, err := os.Stat(dir)
		if !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return dir, info, err
		}
		dir = filepath.Dir(dir)
	}
}

func owner(r *Report, dir string, info fs.FileInfo) {
	st, ok := info.Sys().(*syscall.Stat_t)
	mode := info.Mode().Perm()
	switch {
	case ok && st.Uid != 0:
		r.Warn("owner", "chown root "+dir, "%s belongs to uid %d: whoever that is can exchange what is in it", dir, st.Uid)
	case mode&0o022 != 0:
		r.Warn("mode", "chmod 0711 "+dir, "%s has mode %04o: others can exchange what is in it", dir, mode)
	default:
		r.OK("", "%s belongs to root, mode %04o", dir, mode)
	}
}

// passage looks whether MCP servers and sandboxes, which have uids of their own, get to the folder.
func passage(r *Report, dir string) {
	for parent := filepath.Dir(dir); ; parent = filepath.Dir(parent) {
		if info, err := os.Stat(parent); err == nil && info.Mode().Perm()&0o001 == 0 {
			r.Warn("way", "chmod o+x "+parent+", or choose another folder with --data", "%s lets nobody but its owner through: MCP servers, which run with other uids, do not reach their homes below it", parent)
		}
		if parent == filepath.Dir(parent) {
			return
		}
	}
}

func space(r *Report, dir string) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		r.Warn("space", "look whether the disk is in order", "how much is free cannot be read: %s", reason(err))
		return
	}
	free := int64(s.Bavail) * s.Bsize //nolint:gosec // sizes of disks are far below 2^63
	const fix = "make room, or choose a folder on another disk with --data"
	switch {
	case free < noSpace:
		r.Problem("space", fix, "%d MiB are free: hardly anything can be written", free>>20)
	case s.Files > 0 && s.Ffree < s.Files/fewInodes:
		r.Warn("space", fix, "%d of %d inodes are free", s.Ffree, s.Files)
	case free < littleSpace:
		r.Warn("space", fix, "%d MiB are free: one sandbox alone may use that much", free>>20)
	default:
		r.OK("space", "%d GiB are free", free>>30)
	}
}

// reason is an error of the system without the path, which is said already.
func reason(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// mount is a mounted file system.
type mount struct {
	at, kind string
	options  []string // of the mount, and of the file system
}

// Quota looks at what the host offers to bound the disk space of a thread and of a user: project quotas of the
// file system that dir is on, or file systems of a given size in a file.
func Quota(r *Report, dir string) {
	at, _, err := nearest(dir)
	if err == nil {
		at, err = filepath.EvalSymlinks(at)
	}
	if err != nil {
		r.Warn("", "see the line of the data folder", "the data folder cannot be reached: %s", reason(err))
		return
	}
	m, ok := mountOf(at, "/proc/self/mountinfo")
	if !ok {
		r.Warn("", "keep the data folder on a disk of this host", "the file system of the data folder is not among those mounted here")
		return
	}
	quota(r, m, loopImages())
}

func quota(r *Report, m mount, loop string) {
	on := slices.ContainsFunc(m.options, func(o string) bool { return o == "prjquota" || o == "pquota" })
	image := "; a file system image of a fixed size is possible (loop device, mkfs.ext4)"
	if loop != "" {
		image = "; a file system image of a fixed size is not: " + loop
	}
	switch {
	case on:
		r.OK("project quota", "%s at %s counts by project (prjquota)%s", m.kind, m.at, image)
		return
	case loop == "":
		r.OK("loop image", "%s at %s does not count by project (no prjquota)%s", m.kind, m.at, image)
		return
	}
	fix := "keep the data folder on xfs or ext4, mounted with prjquota"
	switch m.kind {
	case "xfs":
		fix = "mount " + m.at + " with the option prjquota (for a root file system: rootflags=prjquota)"
	case "ext4":
		fix = "unmount " + m.at + ", run tune2fs -O project,quota on its device, and mount it with the option prjquota"
	}
	r.Warn("", fix, "%s at %s does not count by project (no prjquota)%s. Nothing of the host can keep a thread from filling the disk", m.kind, m.at, image)
}

// mountOf finds the file system that a path without links is on.
func mountOf(path, mountinfo string) (mount, bool) {
	f, err := os.Open(mountinfo)
	if err != nil {
		return mount{}, false
	}
	defer f.Close() //nolint:errcheck // only read
	var found mount
	ok := false
	for scanner := bufio.NewScanner(f); scanner.Scan(); {
		before, after, cut := strings.Cut(scanner.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !cut || len(left) < 6 || len(right) < 3 {
			continue
		}
		at := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(left[4])
		if within(path, at) && len(at) >= len(found.at) { // of two at one place the later one is on top
			ok = true
			found = mount{at: at, kind: right[0], options: append(strings.Split(left[5], ","), strings.Split(right[2], ",")...)}
		}
	}
	return found, ok
}

func within(path, at string) bool {
	return at == "/" || path == at || strings.HasPrefix(path, at+"/")
}

// loopImages says why no file system image can be mounted, or "".
func loopImages() string {
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		return "there are no loop devices"
	}
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		return "there is no mkfs.ext4 (e2fsprogs)"
	}
	return ""
}
