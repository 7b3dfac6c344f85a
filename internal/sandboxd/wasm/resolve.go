package wasm

import (
	"io/fs"
	"path"
	"strings"

	wasisys "github.com/tetratelabs/wazero/experimental/sys"
	"golang.org/x/sys/unix"
)

const maxLinks = 40 // as Linux

// resolve returns the path in the tree that a name leads to. No word of it is a symlink; the last may be one unless follow.
// What is not there is left to the call that follows.
//
// On Linux os.Root would do. gVisor follows a symlink that is opened with O_DIRECTORY and O_NOFOLLOW, which is how os.Root
// finds one before the end of a path: it leaves the tree there. A module alone has nothing that runs between this look and
// the call; other code of the sandbox could, and can read the same file itself.
func (t *tree) resolve(name string, follow bool) (string, wasisys.Errno) {
	if len(name) >= unix.PathMax {
		return "", wasisys.ENAMETOOLONG
	}
	at, links := ".", 0
	for rest := strings.Split(name, "/"); len(rest) > 0; {
		word := rest[0]
		rest = rest[1:]
		switch word {
		case "", ".":
			continue
		case "..":
			if at == "." {
				return "", wasisys.EPERM
			}
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, word)
		info, err := t.root.Lstat(next)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 || !follow && strings.Join(rest, "") == "" {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", wasisys.ELOOP
		}
		to, err := t.root.Readlink(next)
		if err != nil {
			return "", errnoOf(err)
		}
		if path.IsAbs(to) || len(to) >= unix.PathMax {
			return "", wasisys.EPERM
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	return at, 0
}
