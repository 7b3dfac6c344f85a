package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/attack/wire"
)

const siblingSecret = "the secret of a sibling"

// writeFacts writes a file of facts, whole.
func writeFacts(path string, f wire.Facts) error {
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", data, 0o644); err != nil { //nolint:gosec // all may read it
		return err
	}
	return os.Rename(path+".new", path)
}

// victimTimeout bounds the life of who is attacked, if it is not ended.
const victimTimeout = 10 * time.Minute

func untilEnded() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGTERM)
	select {
	case <-ended:
	case <-time.After(victimTimeout):
	}
}

// sibling is another exec of the same sandbox: it has a secret in its memory, and a terminal.
func sibling(args []string) error {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer terminal.Close()
	fd := int(terminal.Fd())
	unlock := int32(0)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCSPTLCK, uintptr(unsafe.Pointer(&unlock))); errno != 0 {
		return fmt.Errorf("unlock the terminal: %w", errno)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return err
	}
	path := "/dev/pts/" + strconv.Itoa(n)
	slave, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer slave.Close()
	session := exec.Command("/proc/self/exe", "idle")
	session.Stdin = slave
	session.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := session.Start(); err != nil {
		return err
	}
	secret := []byte(siblingSecret)
	err = writeFacts(siblingFile, wire.Facts{
		"pid": strconv.Itoa(os.Getpid()), "address": strconv.FormatUint(uint64(uintptr(unsafe.Pointer(&secret[0]))), 16), "terminal": path,
	})
	if err != nil {
		return err
	}
	untilEnded()
	runtime.KeepAlive(secret)
	return errors.Join(session.Process.Kill(), session.Wait())
}

// victim is the neighbour, or a process on the host: it listens, and has shared memory. Its arguments are its
// mark, the file into which it writes where it can be found, and files that it uses.
func victim(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: probe victim MARK FILE USED…")
	}
	mark, file := args[0], args[1]
	if err := use(args[2:]); err != nil {
		return err
	}
	local, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	abstract, err := net.Listen("unix", "@skerry-"+mark)
	if err != nil {
		return err
	}
	for _, l := range []net.Listener{local, abstract} {
		go greet(l, mark) // ends with the process
	}
	hash := fnv.New32a()
	hash.Write([]byte(mark))
	key := int(hash.Sum32() & 0x7fffffff)
	id, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|0o600)
	if err != nil {
		return fmt.Errorf("shared memory: %w", err)
	}
	defer unix.SysvShmCtl(id, unix.IPC_RMID, nil) //nolint:errcheck // nothing more can be done
	memory, err := unix.SysvShmAttach(id, 0, 0)
	if err != nil {
		return err
	}
	copy(memory, mark)
	err = writeFacts(file, wire.Facts{"mark": mark, "port": local.Addr().String(), "abstract": "@skerry-" + mark, "shm": strconv.Itoa(key)})
	if err != nil {
		return err
	}
	untilEnded()
	return nil
}

func greet(l net.Listener, text string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		fmt.Fprintln(conn, text)
		conn.Close()
	}
}

// outside is the world, in a network namespace of its own: the addresses that attacks look for are there.
func outside(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: probe outside FILE")
	}
	if err := setLoopback(true); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	for _, ip := range []string{"169.254.169.254", "192.0.2.1", "198.51.100.53", "2001:db8::1"} {
		if err := addAddress(net.ParseIP(ip)); err != nil {
			return fmt.Errorf("address %s: %w", ip, err)
		}
	}
	all, err := net.Listen("tcp", ":80") // of both families
	if err != nil {
		return err
	}
	go greet(all, "outside") // ends with the process
	names, err := net.ListenPacket("udp", "198.51.100.53:53")
	if err != nil {
		return err
	}
	go func() { // ends with the process
		b := make([]byte, 512)
		for {
			n, from, err := names.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = names.WriteTo(b[:n], from)
		}
	}()
	if err := writeFacts(args[0], wire.Facts{"outside": strconv.Itoa(os.Getpid())}); err != nil {
		return err
	}
	untilEnded()
	return nil
}

// idle does nothing.
func idle([]string) error {
	untilEnded()
	return nil
}

// crash ends as a program does that dumps its memory.
func crash([]string) error {
	panic("as it was told to")
}
