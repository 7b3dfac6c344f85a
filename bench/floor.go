package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const floorArg = "floor"

// serveFloor is the floor of an exec: for each byte on its socket it forks `true` and waits for it. It has no
// limits, no records, no deadline and no output.
func serveFloor(args []string) error {
	if len(args) != 1 {
		return errors.New("floor: give the path of the socket")
	}
	ln, err := net.Listen("unix", args[0])
	if err != nil {
		return err
	}
	for {
		conn, err := ln.Accept()
		if err != nil {
			return err
		}
		serveForks(conn)
	}
}

func serveForks(conn net.Conn) {
	defer conn.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return
	}
	defer null.Close()
	var one [1]byte
	for {
		if _, err := conn.Read(one[:]); err != nil {
			return
		}
		var status syscall.WaitStatus
		pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{Files: []uintptr{null.Fd(), 2, 2}})
		if err == nil {
			_, err = syscall.Wait4(pid, &status, 0, nil)
		}
		if one[0] = 0; err != nil || status.ExitStatus() != 0 {
			one[0] = 1
		}
		if _, err := conn.Write(one[:]); err != nil {
			return
		}
	}
}

// floor starts the daemon in a container of the image, and returns what has it run `true` once.
func (b *bench) floor(image string) (do func() error, stop func() error, err error) {
	dir := filepath.Join(b.dir, "floor")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, nil, err
	}
	c, err := startContainer(image, []string{"-v", b.self + ":/bench:ro", "-v", dir + ":/floor"}, "/bench", floorArg, "/floor/sock")
	if err != nil {
		return nil, nil, err
	}
	var conn net.Conn
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if conn, err = net.Dial("unix", filepath.Join(dir, "sock")); err == nil || time.Now().After(deadline) {
			break
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, c.remove())
	}
	do = func() error {
		one := [1]byte{1}
		if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return err
		}
		if _, err := conn.Write(one[:]); err != nil {
			return err
		}
		if _, err := conn.Read(one[:]); err != nil {
			return err
		}
		if one[0] != 0 {
			return fmt.Errorf("the daemon of the floor could not run true")
		}
		return nil
	}
	return do, func() error { return errors.Join(conn.Close(), c.remove()) }, nil
}
