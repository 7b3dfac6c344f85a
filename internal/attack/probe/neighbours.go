package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/attack/wire"
)

const (
	// useEvery is how often a victim opens the files that it uses.
	useEvery = 50 * time.Millisecond
	// watchTime is how long an attacker waits for it.
	watchTime = 3 * time.Second
)

// use locks files, and opens them again and again until the process ends, as one does that runs programs and reads
// documents.
func use(paths []string) error {
	for _, p := range paths {
		held, err := os.Open(p)
		if err != nil {
			return err
		}
		if err := unix.Flock(int(held.Fd()), unix.LOCK_EX); err != nil {
			return fmt.Errorf("lock %s: %w", p, err)
		}
		go func() { // ends with the process
			defer held.Close()
			for {
				if f, err := os.Open(p); err == nil {
					_, _ = f.Read(make([]byte, 16))
					f.Close()
				}
				time.Sleep(useEvery)
			}
		}()
	}
	return nil
}

// watchFile asks the kernel to be told when a file is opened. The attacker does not open it.
func watchFile(fact string) attempt {
	return func(f wire.Facts) (string, error) {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
		if err != nil {
			return "", err
		}
		defer unix.Close(fd)
		if _, err := unix.InotifyAddWatch(fd, f[fact], unix.IN_OPEN|unix.IN_ACCESS|unix.IN_CLOSE); err != nil {
			return "", err
		}
		buf := make([]byte, 4096)
		for end := time.Now().Add(watchTime); time.Now().Before(end); time.Sleep(useEvery) {
			n, err := unix.Read(fd, buf)
			if n > 0 {
				return fmt.Sprintf("%d bytes of events of %s", n, f[fact]), nil
			}
			if err != nil && !errors.Is(err, unix.EAGAIN) {
				return "", broken("read events", err)
			}
		}
		return "", refusal("nothing is seen")
	}
}

// lockFile looks whether another process holds a lock on a file.
func lockFile(fact string) attempt {
	return func(f wire.Facts) (string, error) {
		file, err := os.Open(f[fact])
		if err != nil {
			return "", err
		}
		defer file.Close()
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EWOULDBLOCK):
			return "a neighbour has locked " + f[fact], nil
		case err != nil:
			return "", err
		}
		return "", refusal("no lock is found")
	}
}
