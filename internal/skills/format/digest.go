package format

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Limits of one skill, those of the Skills extension of MCP (SEP-2640).
const (
	MaxFiles = 512
	MaxBytes = 16 << 20 // of all files together
	MaxDepth = 8        // folders within each other
	maxPath  = 512      // bytes of a path
	// MaxEntries bounds what is looked at in a folder: folders and links do not count as files.
	MaxEntries = 4 * MaxFiles
)

// File is one file of a skill, with what counts for its digest.
type File struct {
	sandbox.SkillFile
	Exec bool // may be run
}

// Digest returns the digest of a skill's folder: "sha256:" and 64 hex digits. It is the SHA-256 of one line
// for each regular file, sorted by the bytes of its path. The line has the SHA-256 of its contents in hex,
// its size in decimal, and "x" when any execute bit is set, else "-". Then it has the path as a Go string in
// quotes, with blanks between and \n at the end. Owner, time, other bits of the mode, folders, and what is
// no regular file do not count: they are not part of a skill. Invalid when a limit is exceeded or a name
// cannot be one in a sandbox.
func Digest(fsys fs.FS) (string, error) {
	files, err := Files(fsys)
	if err != nil {
		return "", err
	}
	return DigestOf(files), nil
}

// DigestOf returns the digest of a skill with these files, which are sorted by path.
func DigestOf(files []File) string {
	sum := sha256.New()
	for _, f := range files {
		sum.Write(f.line()) //nolint:errcheck // a hash never fails
	}
	return DigestText(sum.Sum(nil))
}

func (f File) line() []byte {
	exec := "-"
	if f.Exec {
		exec = "x"
	}
	return []byte(strings.TrimPrefix(f.Digest, DigestPrefix) + " " + strconv.FormatInt(f.Bytes, 10) + " " + exec + " " + strconv.Quote(f.Path) + "\n")
}

// DigestPrefix begins each digest.
const DigestPrefix = "sha256:"

// DigestText writes a SHA-256 as a digest.
func DigestText(sum []byte) string { return DigestPrefix + hex.EncodeToString(sum) }

// CheckDigest says whether a text is a digest as Digest makes it.
func CheckDigest(s string) bool {
	text, ok := strings.CutPrefix(s, DigestPrefix)
	raw, err := hex.DecodeString(text)
	return ok && err == nil && len(raw) == sha256.Size && text == strings.ToLower(text)
}

// Files reads all regular files of a skill's folder, sorted by path. Invalid as Digest says.
func Files(fsys fs.FS) ([]File, error) {
	var files []File
	total, entries := int64(0), 0
	err := fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entries++; entries > MaxEntries {
			return sandbox.Errorf(sandbox.Invalid, "a skill has at most %d files and folders", MaxEntries)
		}
		if err := CheckPath(p); err != nil || !d.Type().IsRegular() {
			return err
		}
		if len(files) == MaxFiles {
			return sandbox.Errorf(sandbox.Invalid, "a skill has at most %d files", MaxFiles)
		}
		f, err := hashFile(fsys, p, MaxBytes-total)
		if err != nil {
			return err
		}
		total += f.Bytes
		files = append(files, f)
		return nil
	})
	if err != nil {
		return nil, Unreadable(err)
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return files, nil
}

// Unreadable hides what the file system says, and keeps what was said for the caller.
func Unreadable(err error) error {
	var known *sandbox.Error
	if errors.As(err, &known) {
		return err
	}
	return sandbox.Wrap(sandbox.Internal, err, "the skill's files cannot be read")
}

// CheckPath refuses what a reader in a sandbox, a list or a log would take for something else.
func CheckPath(p string) error {
	switch {
	case !utf8.ValidString(p) || strings.ContainsFunc(p, unicode.IsControl) || strings.ContainsAny(p, `\:`):
		return sandbox.Errorf(sandbox.Invalid, "%.200q: a name in a skill has no control characters, no \\ and no colon", p)
	case len(p) > maxPath:
		return sandbox.Errorf(sandbox.Invalid, "%.100q…: a path in a skill has at most %d bytes", p, maxPath)
	case strings.Count(p, "/") >= MaxDepth:
		return sandbox.Errorf(sandbox.Invalid, "%.200q: a skill's folders are at most %d deep", p, MaxDepth)
	}
	return nil
}

func hashFile(fsys fs.FS, p string, limit int64) (File, error) {
	f, err := fsys.Open(p)
	if err != nil {
		return File{}, err
	}
	defer f.Close() //nolint:errcheck // it was read
	info, err := f.Stat()
	if err != nil {
		return File{}, err
	}
	if !info.Mode().IsRegular() { // it was one when the folder was read
		return File{}, fmt.Errorf("%s: not a regular file", p)
	}
	sum := sha256.New()
	n, err := io.Copy(sum, io.LimitReader(f, limit+1))
	if err != nil {
		return File{}, err
	}
	if n > limit {
		return File{}, sandbox.Errorf(sandbox.Invalid, "a skill has at most %d bytes", MaxBytes)
	}
	return File{SkillFile: sandbox.SkillFile{Path: p, Bytes: n, Digest: DigestText(sum.Sum(nil))}, Exec: info.Mode()&0o111 != 0}, nil
}
