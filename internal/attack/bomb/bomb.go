// Package bomb has programs that use up all there is of one thing. They run in a sandbox, in tests and in
// measurements of what a neighbour notices. They also run in a plain container, to show that only the
// sandbox's limits stop them.
package bomb

import (
	_ "embed"
	"strconv"
)

//go:embed bomb.py
var program string

// Bomb is one of the programs.
type Bomb struct {
	Name  string
	Class string
	Does  string // what it uses up
	Limit string // what stops it
	// Enough is what no sandbox may get to, in units of the thing, and a plain container does. The limits that it is
	// above are those of Template, and for the cpu, of which a busy machine has little, SlowTemplate.
	Enough int
}

const image = `
description: for attacks
image: {docker: "skerry/base:latest", oci: base}
runtime: runc
languages: [python, bash]
idle_timeout_s: 900
`

// The templates with the limits that Enough is above.
const (
	Template     = "name: base" + image + "limits: {memory: 256MiB, cpu: 1000m, pids: 128, open_files: 1024, file_size: 64MiB, tmp: 64MiB, disk: 256MiB}\n"
	SlowTemplate = "name: slow" + image + "limits: {memory: 256MiB, cpu: 40m, pids: 128, open_files: 1024, file_size: 64MiB, tmp: 64MiB, disk: 256MiB}\n"
)

// All returns the bombs.
func All() []Bomb {
	return []Bomb{
		{"bomb-fork", "bombs: processes", "forks in every process", "cgroup: pids", 300},
		{"bomb-threads", "bombs: processes", "starts threads", "cgroup: pids", 300},
		{"bomb-daemons", "bombs: leftovers", "leaves processes of new sessions behind, and zombies", "sub-reaper of the exec", 20},
		{"bomb-stop", "bombs: leftovers", "stops its supervisor, sandboxd and all processes that it may signal", "seccomp filter of the supervisor; the server's deadline", 1},
		{"bomb-memory", "bombs: memory", "takes memory and writes to it, in MiB", "cgroup: memory", 400},
		{"bomb-shm", "bombs: memory", "fills /dev/shm, in MiB", "size of the tmpfs; cgroup: memory", 300},
		{"bomb-buffers", "bombs: memory", "fills pipes and sockets, in MiB", "cgroup: memory; open files", 350},
		{"bomb-tmp", "bombs: files", "fills /tmp, in MiB", "size of the tmpfs", 200},
		{"bomb-inodes", "bombs: files", "makes empty files in /tmp", "inodes of the tmpfs", 20_000},
		{"bomb-fds", "bombs: files", "opens files in one process", "limit of open files", 3000},
		{"bomb-cpu", "bombs: time", "computes in 64 processes, in hundredths of a core", "cgroup: cpu", 9},
		{"bomb-timers", "bombs: time", "arms timers that fire all the time", "limit of pending signals", 5000},
		{"bomb-output", "bombs: time", "writes to stdout and stderr, in MiB kept", "limit of output", 8},
	}
}

// Argv is the command of a bomb that goes on until it is ended. It prints lines "reached N".
func (b Bomb) Argv() []string { return b.argv("for-ever") }

// Bounded is the command of a bomb that ends when it has got to Enough.
func (b Bomb) Bounded() []string { return b.argv("bounded") }

func (b Bomb) argv(how string) []string {
	return []string{"python3", "-c", program, b.Name, strconv.Itoa(b.Enough), how}
}
