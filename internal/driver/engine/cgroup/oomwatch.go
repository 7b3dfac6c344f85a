package cgroup

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// OOMWatch remembers in which groups the kernel ended a process for lack of memory, also when the group is removed at
// once. An engine that removes it learns of both by two ways that race, and may miss the first.
type OOMWatch struct {
	events *os.File // inotify

	mu      sync.Mutex
	watched map[int32]watchedGroup
	killed  map[string]bool
	done    chan struct{} // closed when its goroutine has ended
}

type watchedGroup struct {
	id   string
	file string // its memory.events
}

// NewOOMWatch starts a watch. Close it.
func NewOOMWatch() (*OOMWatch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch control groups: %w", err)
	}
	w := &OOMWatch{
		events: os.NewFile(uintptr(fd), "inotify"), watched: map[int32]watchedGroup{}, killed: map[string]bool{}, done: make(chan struct{}),
	}
	go w.follow()
	return w, nil
}

// Close ends the watch. What it knows stays.
func (w *OOMWatch) Close() error {
	err := w.events.Close()
	<-w.done
	return err
}

// Add watches the group of a sandbox. With version 1, whose engines tell reliably, and for a group that is not there,
// it does nothing.
func (w *OOMWatch) Add(id string, group string) {
	mount, v1 := mountOf("memory")
	if group != "" && mount != "" && !v1 {
		w.add(id, filepath.Join(mount, group, "memory.events"))
	}
}

func (w *OOMWatch) add(id string, file string) {
	conn, err := w.events.SyscallConn()
	if err != nil {
		return // it is closed
	}
	_ = conn.Control(func(fd uintptr) {
		w.mu.Lock()
		defer w.mu.Unlock()
		wd, err := unix.InotifyAddWatch(int(fd), file, unix.IN_MODIFY)
		if err == nil {
			w.watched[int32(wd)] = watchedGroup{id, file} //nolint:gosec // the kernel's are small
		}
	})
	w.look(watchedGroup{id, file}) // it may have happened before
}

// Killed reports whether the kernel has ended a process of the sandbox for lack of memory.
func (w *OOMWatch) Killed(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.killed[id]
}

// Forget forgets a sandbox that is removed. Its watch ends with its group.
func (w *OOMWatch) Forget(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.killed, id)
}

// follow ends with Close.
func (w *OOMWatch) follow() {
	defer close(w.done)
	buffer := make([]byte, 64<<10)
	for {
		n, err := w.events.Read(buffer)
		if err != nil {
			return
		}
		for b := buffer[:n]; len(b) >= unix.SizeofInotifyEvent; {
			wd, mask := int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:]) //nolint:gosec // as the kernel writes it
			name := binary.NativeEndian.Uint32(b[12:])
			b = b[min(len(b), unix.SizeofInotifyEvent+int(name)):]
			w.mu.Lock()
			g := w.watched[wd]
			if mask&unix.IN_IGNORED != 0 {
				delete(w.watched, wd)
			}
			w.mu.Unlock()
			w.look(g)
		}
	}
}

// look reads the group's count. One that is gone says nothing.
func (w *OOMWatch) look(g watchedGroup) {
	if kills, err := count(g.file, "oom_kill"); err != nil || kills == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.killed[g.id] = true
}
