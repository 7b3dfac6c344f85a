package archive

import (
	"path"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

var drive = regexp.MustCompile(`^[A-Za-z]:`)

// reserved are the device names of Windows, with any ending, in any case. The superscripts count as digits
// there.
var reserved = regexp.MustCompile(`(?i)^(con|prn|aux|nul|conin\$|conout\$|clock\$|(com|lpt)[0-9¹²³])[ ]*(\.|$)`)

// checkName returns the clean path of an entry, without the slash at the end of a folder, or refuses it.
// The rules are those of all systems together, so that a skill that is let in is the same everywhere.
func checkName(name string, l Limits) (string, error) {
	switch {
	case name == "":
		return "", refuse(PathForm, "", "an entry has no name")
	case len(name) > l.PathBytes:
		return "", refuse(NameLength, name, "is longer than %d bytes", l.PathBytes)
	case !utf8.ValidString(name):
		return "", refuse(NameCharacters, strings.ToValidUTF8(name, "?"), "is not UTF-8")
	case strings.Contains(name, `\`):
		return "", refuse(Backslash, name, "has a backslash; folders are separated by /")
	case name[0] == '/' || drive.MatchString(name):
		return "", refuse(AbsolutePath, name, "is an absolute path")
	}
	clean := strings.TrimSuffix(name, "/")
	parts := strings.Split(clean, "/")
	if len(parts) > l.Depth+1 { // one more for the wrapper
		return "", refuse(TooDeep, name, "is deeper than %d folders", l.Depth)
	}
	for _, part := range parts {
		if err := checkPart(name, part, l); err != nil {
			return "", err
		}
	}
	return clean, nil
}

func checkPart(name, part string, l Limits) error {
	switch {
	case part == "..":
		return refuse(ParentPath, name, `leaves the archive by ".."`)
	case part == "" || part == ".":
		return refuse(PathForm, name, `has an empty part or "."`)
	case len(part) > l.NameBytes:
		return refuse(NameLength, name, "has a part of more than %d bytes", l.NameBytes)
	case strings.Contains(part, ":"):
		return refuse(NTFSStream, name, "has a colon, which names a stream on NTFS")
	case strings.ContainsAny(part, `<>"|?*`), strings.HasSuffix(part, "."), strings.HasSuffix(part, " "), reserved.MatchString(part):
		return refuse(WindowsName, name, "is not a name that Windows can have")
	case strings.ContainsFunc(part, invisible):
		return refuse(NameCharacters, name, "has characters that do not show")
	}
	return nil
}

// invisible tells characters that no honest file name has: controls, and formats that reorder or hide text.
func invisible(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r) || r == utf8.RuneError
}

// nameSet finds names that would be one file on some file system.
type nameSet struct {
	fold cases.Caser
	seen map[string]known // by folded path
}

type known struct {
	name     string
	dir      bool
	explicit bool // an entry of its own, not only the parent of one
}

func newNameSet() *nameSet { return &nameSet{fold: cases.Fold(), seen: map[string]known{}} }

// key is what a file system that ignores case and normalises Unicode would take a name for.
func (s *nameSet) key(name string) string {
	// Folding can undo the normal form and the other way round: twice is a fixed point.
	return norm.NFKC.String(s.fold.String(norm.NFKC.String(s.fold.String(name))))
}

// add takes a name and all folders above it.
func (s *nameSet) add(name string, dir bool) error {
	for p := path.Dir(name); p != "."; p = path.Dir(p) {
		if err := s.put(name, known{name: p, dir: true}); err != nil {
			return err
		}
	}
	return s.put(name, known{name: name, dir: dir, explicit: true})
}

func (s *nameSet) put(entry string, k known) error {
	key := s.key(k.name)
	old, ok := s.seen[key]
	switch {
	case !ok:
	case old.name != k.name && s.fold.String(old.name) == s.fold.String(k.name):
		return refuse(CaseCollision, entry, "differs from %.200q by case only", old.name)
	case old.name != k.name:
		return refuse(UnicodeCollision, entry, "is written as %.200q is, but with other characters", old.name)
	case old.dir != k.dir:
		return refuse(FileAsFolder, entry, "is a file and a folder at once")
	case old.explicit && k.explicit:
		return refuse(Duplicate, entry, "is there twice")
	}
	k.explicit = k.explicit || old.explicit
	s.seen[key] = k
	return nil
}
