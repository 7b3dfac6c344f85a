package tree

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind is what an entry is. There are no others: what else a tree has is not copied.
type Kind uint8

// The kinds of entries.
const (
	File Kind = iota + 1
	Folder
	Link
)

// Digest is a SHA-256; all zeros: not known.
type Digest [32]byte

// Known says whether it is one.
func (d Digest) Known() bool { return d != Digest{} }

// Stamp changes when a file does: two reads of one file with the same stamp saw the same content, unless the
// first of them was Racy.
type Stamp struct {
	Dev, Ino     uint64
	Size         int64
	Mtime, Ctime int64 // in nanoseconds
}

// racyTime is longer than the resolution of a file's times.
const racyTime = 50 * time.Millisecond

// RacyAt says that the file was changed so shortly before now that a later change may bear the same stamp.
func (s Stamp) RacyAt(now time.Time) bool {
	return now.UnixNano()-max(s.Ctime, s.Mtime) < int64(racyTime)
}

// Entry is one file, folder or symbolic link of a tree.
type Entry struct {
	Path   string
	Kind   Kind
	Mode   uint32 // permissions, at most 0777; 0 of a link
	Size   int64  // of a file
	Mtime  int64  // of a file, in nanoseconds
	Target string // of a link
	Digest Digest // of a file, when it is known
	Stamp  Stamp
	Racy   bool
}

// Limits bound a tree. All must be set.
type Limits struct {
	Entries   int
	Bytes     int64 // of all files together, as their sizes say
	FileBytes int64 // of one
	Names     int   // bytes of all paths and targets of links together
}

const (
	// MaxEntries is the most that Limits.Entries is set to: both ends keep a list of all in memory.
	MaxEntries = 100_000
	// MaxNames is what Limits.Names is set to, for the same reason: one entry has up to 8 kB of them.
	MaxNames = 32 << 20
)

const (
	maxName   = 255
	maxPath   = 4096
	maxDepth  = 128
	maxTarget = 4095
)

// Aside begins the names in a tree's root that stand for what is not yet, or no longer, in it.
const Aside = ".skerry-new-"

// ErrTooMuch is in the chain of an error that says that a tree is beyond a limit. Its text is fit for callers.
var ErrTooMuch = errors.New("beyond a limit")

// Counter adds up what Limits bound.
type Counter struct {
	Limits
	entries int
	names   int // bytes of paths and targets
	bytes   int64
}

func tooMany(entries int) error {
	return fmt.Errorf("%w: more than %d files and folders", ErrTooMuch, entries)
}

// Add counts one entry in.
func (c *Counter) Add(e Entry) error {
	if c.entries++; c.entries > c.Entries {
		return tooMany(c.Entries)
	}
	if c.names += len(e.Path) + len(e.Target); c.names > c.Names {
		return fmt.Errorf("%w: the paths of all files, folders and links together have more than %d bytes", ErrTooMuch, c.Names)
	}
	if e.Kind != File {
		return nil
	}
	if e.Size > c.FileBytes {
		return fmt.Errorf("%w: %.200q has %d bytes, more than %d", ErrTooMuch, e.Path, e.Size, c.FileBytes)
	}
	if c.bytes += e.Size; c.bytes > c.Bytes {
		return fmt.Errorf("%w: all files together have more than %d bytes", ErrTooMuch, c.Bytes)
	}
	return nil
}

// CheckPath says what is wrong with a path that came from outside. The root itself, "", is none.
func CheckPath(p string) error {
	if p == "" || len(p) > maxPath {
		return fmt.Errorf("a path of %d bytes, want 1 to %d", len(p), maxPath)
	}
	depth := 0
	for name := range strings.SplitSeq(p, "/") {
		if err := checkName(name); err != nil {
			return fmt.Errorf("%.200q: %w", p, err)
		}
		depth++
	}
	if depth > maxDepth {
		return fmt.Errorf("%.200q: %d levels deep, more than %d", p, depth, maxDepth)
	}
	return nil
}

func checkName(name string) error {
	if name == "" || name == "." || name == ".." || len(name) > maxName || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%.100q is not the name of a file", name)
	}
	return nil
}

// Check says what is wrong with an entry that came from outside.
func (e Entry) Check() error {
	if err := CheckPath(e.Path); err != nil {
		return err
	}
	switch {
	case e.Kind < File || e.Kind > Link:
		return fmt.Errorf("%.200q: kind %d", e.Path, e.Kind)
	case e.Mode > 0o777:
		return fmt.Errorf("%.200q: mode %o, more than 777", e.Path, e.Mode)
	case e.Size < 0 || e.Kind != File && e.Size != 0:
		return fmt.Errorf("%.200q: %d bytes", e.Path, e.Size)
	case e.Kind == Link && (e.Target == "" || len(e.Target) > maxTarget || strings.ContainsRune(e.Target, 0)):
		return fmt.Errorf("%.200q: a link whose target has %d bytes, want 1 to %d without NUL", e.Path, len(e.Target), maxTarget)
	case e.Kind != Link && e.Target != "":
		return fmt.Errorf("%.200q: a target, and no link", e.Path)
	}
	return nil
}

// Compare orders paths as a walk comes to them: a folder, all that is in it, what comes behind it.
func Compare(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] == b[i] {
			continue
		}
		switch {
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		case a[i] < b[i]:
			return -1
		}
		return 1
	}
	return len(a) - len(b)
}

// Under says whether path is dir or below it. All is below "".
func Under(path, dir string) bool {
	return dir == "" || path == dir || len(path) > len(dir) && path[len(dir)] == '/' && path[:len(dir)] == dir
}

// Parent is the folder that a path lies in; "" for what lies in the root.
func Parent(path string) string {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i]
	}
	return ""
}

// Base is the last name of a path.
func Base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// List is a tree, or a part of one, in the order of Compare.
type List []Entry

// Check says what is wrong with a list that came from outside: its order, or an entry in what is no folder. Entries of
// the folder named by under have no parent in it.
func (l List) Check(under string) error {
	for i, e := range l {
		if err := e.Check(); err != nil {
			return err
		}
		if !Under(e.Path, under) {
			return fmt.Errorf("%.200q does not lie in %.200q", e.Path, under)
		}
		if i > 0 && Compare(l[i-1].Path, e.Path) >= 0 {
			return fmt.Errorf("%.200q comes behind %.200q", e.Path, l[i-1].Path)
		}
		if p := Parent(e.Path); e.Path != under && p != under {
			if found, ok := l[:i].Find(p); !ok || found.Kind != Folder {
				return fmt.Errorf("%.200q lies in what is no folder", e.Path)
			}
		}
	}
	return nil
}

// Find looks for a path.
func (l List) Find(path string) (Entry, bool) {
	i, ok := l.search(path)
	if !ok {
		return Entry{}, false
	}
	return l[i], true
}

func (l List) search(path string) (int, bool) {
	return slices.BinarySearchFunc(l, path, func(e Entry, p string) int { return Compare(e.Path, p) })
}

// Part returns what is at a path and below it.
func (l List) Part(path string) List {
	from, to := l.bounds(path)
	return l[from:to]
}

func (l List) bounds(path string) (from, to int) {
	if path == "" {
		return 0, len(l)
	}
	from, _ = l.search(path)
	for to = from; to < len(l) && Under(l[to].Path, path); to++ {
	}
	return from, to
}

// With returns a list that has part in place of what is at path and below it.
func (l List) With(path string, part List) List {
	from, to := l.bounds(path)
	return slices.Concat(l[:from], part, l[to:])
}

// Change is a difference of two lists at one path. Old or New is nil when there is nothing.
type Change struct {
	Path     string
	Old, New *Entry
}

// Diff walks through two lists and calls differ for each path that is in both, and returns the changes in order.
func Diff(old, now List, differ func(old, now *Entry) bool) []Change {
	var out []Change
	i, j := 0, 0
	for i < len(old) || j < len(now) {
		c := 0
		switch {
		case i == len(old):
			c = 1
		case j == len(now):
			c = -1
		default:
			c = Compare(old[i].Path, now[j].Path)
		}
		switch {
		case c < 0:
			out = append(out, Change{Path: old[i].Path, Old: &old[i]})
			i++
		case c > 0:
			out = append(out, Change{Path: now[j].Path, New: &now[j]})
			j++
		default:
			if differ(&old[i], &now[j]) {
				out = append(out, Change{Path: now[j].Path, Old: &old[i], New: &now[j]})
			}
			i++
			j++
		}
	}
	return out
}
