package snapshot

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// stamp changes when a file does: the sandbox cannot set ctime.
type stamp struct {
	Inode  uint64
	Change int64
}

// racyTime is how shortly before it was looked at a file was changed, when a later change may bear the same stamp. The
// resolution of times is a tick of the kernel, and more on some network file systems.
const racyTime = time.Second

// seen is an entry as a walk found it, without content.
type seen struct {
	Entry entry
	At    stamp
	Racy  bool // it may have changed again without a trace
}

// scanner walks a thread's folder. What is in it is hostile and may change under the walk: it follows no links, opens
// folders one by one, and passes over what vanished.
type scanner struct {
	ctx   context.Context
	most  int // entries
	room  int // bytes of paths and targets that it may still find
	found []seen
	came  int             // names that were visited, whatever they are
	ahead int             // names that the folders on the way hold and that were not
	hard  map[uint64]name // first names of files that have several
	now   int64
	many  func() error // called once when there are manyEntries or manyBytes
	large bool         // it was
	bytes int          // of paths and targets that were found
}

// scan lists all that is kept of a thread's folder: folders before what is in them, each folder's names sorted. many is
// called once when there are manyEntries or manyBytes, and may end it. paths bounds the bytes of all paths and targets.
func scan(ctx context.Context, dir *os.Root, paths int, many func() error) ([]seen, error) {
	s := &scanner{ctx: ctx, most: maxEntries, room: paths, hard: map[uint64]name{}, now: time.Now().UnixNano(), many: many}
	for _, f := range folders {
		if err := s.visit(dir, f, name(f), 1); err != nil {
			return nil, err
		}
	}
	return s.found, nil
}

// openFolder opens a folder by one name. The "/." makes os.Root open it with O_DIRECTORY: without, it would wait forever
// on a FIFO that was swapped in.
func openFolder(dir *os.Root, base string) (*os.Root, error) { return dir.OpenRoot(base + "/.") }

// vanished says that an error comes of a change under the walk, and nothing else.
func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) ||
		errors.Is(err, syscall.EINVAL) || strings.Contains(err.Error(), "path escapes from parent")
}

func (s *scanner) visit(dir *os.Root, base string, path name, depth int) error {
	if err := s.ctx.Err(); err != nil {
		return sandbox.Wrap(sandbox.Timeout, err, "looking at the thread's files took too long")
	}
	info, err := dir.Lstat(base)
	if err != nil {
		return unlessVanished(err)
	}
	if !s.large && (len(s.found) >= manyEntries || s.bytes >= manyBytes) {
		s.large = true
		if err := s.many(); err != nil {
			return err
		}
	}
	if len(s.found) == s.most {
		return errTooMany
	}
	if len(path) > maxPathBytes || depth > maxDepth {
		return sandbox.Errorf(sandbox.QuotaExceeded, "%.200q …: a path of more than %d names or %d bytes cannot be kept; move or remove it", string(path), maxDepth, maxPathBytes)
	}
	e, ok := s.look(dir, base, path, info)
	if !ok || depth == 1 && e.Entry.Kind != kindFolder {
		return nil
	}
	n := len(e.Entry.Path) + len(e.Entry.Target)
	s.bytes += n
	if s.room -= n; s.room < 0 {
		return sandbox.Errorf(sandbox.QuotaExceeded, "the paths of the thread's files have more than %d bytes together, so that they cannot be kept; shorten some", maxScanBytes)
	}
	s.found = append(s.found, e)
	if e.Entry.Kind != kindFolder {
		return nil
	}
	return s.descend(dir, base, path, depth)
}

func unlessVanished(err error) error {
	if vanished(err) {
		return nil
	}
	return sandbox.Wrap(sandbox.Internal, err, "the thread's files cannot be looked at")
}

// look describes what was found; false: it is nothing that is kept, such as a socket.
func (s *scanner) look(dir *os.Root, base string, path name, info fs.FileInfo) (seen, bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return seen{}, false
	}
	e := describe(path, st, s.now)
	switch mode := info.Mode(); {
	case mode.IsDir():
		e.Entry.Kind = kindFolder
	case mode.IsRegular():
		e.Entry.Kind, e.Entry.Bytes = kindFile, st.Size
		if st.Nlink > 1 {
			if first, ok := s.hard[st.Ino]; ok {
				e.Entry = entry{Path: path, Kind: kindHard, Target: first}
			} else {
				s.hard[st.Ino] = path
			}
		}
	case mode&fs.ModeSymlink != 0:
		to, err := dir.Readlink(base)
		if err != nil || to == "" || len(to) > maxPathBytes {
			return seen{}, false
		}
		e.Entry = entry{Path: path, Kind: kindLink, Time: e.Entry.Time, Target: name(to)}
	default:
		return seen{}, false
	}
	e.Racy = e.Racy && e.Entry.Kind == kindFile // of others all is in the entry
	return e, true
}

func describe(path name, st *syscall.Stat_t, now int64) seen {
	change := st.Ctim.Nano()
	return seen{
		Entry: entry{Path: path, Mode: st.Mode & 0o1777, Time: st.Mtim.Nano()},
		At:    stamp{Inode: st.Ino, Change: change}, Racy: now-change < int64(racyTime),
	}
}

func (s *scanner) descend(dir *os.Root, base string, path name, depth int) error {
	sub, err := openFolder(dir, base)
	if err != nil {
		return unlessVanished(err)
	}
	defer sub.Close() //nolint:errcheck // read-only
	list, err := sub.Open(".")
	if err != nil {
		return unlessVanished(err)
	}
	names, err := s.names(list)
	list.Close()
	if err != nil {
		return err
	}
	s.ahead += len(names)
	for _, n := range names {
		s.ahead--
		s.came++
		if err := s.visit(sub, n, path+"/"+name(n), depth+1); err != nil {
			return err
		}
	}
	return nil
}

// names lists a folder, sorted. The folders on the way count, too: each level could hold as many.
func (s *scanner) names(list *os.File) (names []string, err error) {
	for {
		part, err := list.Readdirnames(1024)
		if names = append(names, part...); s.came+s.ahead+len(names) > s.most {
			return nil, errTooMany
		}
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names, nil
		}
		if err != nil {
			return nil, unlessVanished(err)
		}
	}
}

var errTooMany = sandbox.Errorf(sandbox.QuotaExceeded, "the thread has more than %d files and folders, so that they cannot be kept; remove some", maxEntries)
