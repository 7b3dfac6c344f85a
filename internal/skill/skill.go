// Package skill reads Agent Skills (folders with a SKILL.md, https://agentskills.io), makes the
// read-only tree that sandboxes see at /mnt/skills, and says how a script of one is run.
package skill

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Library is a published set of skills: an immutable tree on disk and what is in it.
type Library struct {
	root      string // host folder to mount at /mnt/skills
	skills    map[string]Skill
	manifests sync.Map // sandbox.SkillManifest by name, made when first asked for: the tree does not change
}

// Publish reads the skills of <source>/public and copies them, with modes that any uid can read,
// into a folder below store that bears the digest of the whole. A skill that cannot be read is
// logged and left out; it hides no other. A missing source is an empty library.
func Publish(source, store string, log *slog.Logger) (*Library, error) {
	lib := &Library{skills: map[string]Skill{}}
	if err := os.MkdirAll(store, 0o755); err != nil {
		return nil, fmt.Errorf("skills: %w", err)
	}
	stage, err := os.MkdirTemp(store, ".stage-")
	if err != nil {
		return nil, fmt.Errorf("skills: %w", err)
	}
	defer os.RemoveAll(stage)
	for _, category := range []string{"public", "custom"} {
		if err := os.Mkdir(filepath.Join(stage, category), 0o755); err != nil {
			return nil, fmt.Errorf("skills: %w", err)
		}
	}
	sum := sha256.New()
	entries, err := os.ReadDir(filepath.Join(source, "public"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("skills: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		target := filepath.Join(stage, "public", e.Name())
		sk, err := copySkill(filepath.Join(source, "public", e.Name()), target, sum)
		if err != nil {
			log.Warn("skill left out", "skill", e.Name(), "error", err)
			if err := os.RemoveAll(target); err != nil {
				return nil, fmt.Errorf("skills: %w", err)
			}
			continue
		}
		lib.skills[sk.Name] = sk
	}
	if err := os.Chmod(stage, 0o755); err != nil {
		return nil, fmt.Errorf("skills: %w", err)
	}
	lib.root = filepath.Join(store, hex.EncodeToString(sum.Sum(nil)[:16]))
	if err := os.Rename(stage, lib.root); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("skills: %w", err)
	}
	return lib, nil
}

// copySkill copies one skill folder, regular files only, and adds all of it to sum.
func copySkill(from, to string, sum io.Writer) (Skill, error) {
	root, err := os.OpenRoot(from)
	if err != nil {
		return Skill{}, err
	}
	defer root.Close()
	files, total := 0, int64(0)
	err = fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case strings.Count(p, "/") >= MaxDepth:
			return fmt.Errorf("%s: deeper than %d folders", p, MaxDepth)
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, p), 0o755)
		case !d.Type().IsRegular():
			return nil // links and devices are not part of a skill
		}
		data, exec, err := readRegular(root, p, MaxBytes-total)
		if err != nil {
			return err
		}
		if files++; files > MaxFiles {
			return fmt.Errorf("more than %d files", MaxFiles)
		}
		total += int64(len(data))
		fmt.Fprintf(sum, "%s/%s %t %d\n", path.Base(to), p, exec, len(data))
		sum.Write(data) //nolint:errcheck // a hash never fails
		mode := fs.FileMode(0o444)
		if exec {
			mode = 0o555
		}
		return os.WriteFile(filepath.Join(to, p), data, mode)
	})
	if err != nil {
		return Skill{}, err
	}
	text, err := os.ReadFile(filepath.Join(to, "SKILL.md"))
	if err != nil {
		return Skill{}, errors.New("no SKILL.md")
	}
	sk, _, err := Parse(filepath.Base(from), text)
	sk.Category = sandbox.CategoryPublic
	sk.Location = path.Join(sandbox.SkillsDir, sk.Category, sk.Name, "SKILL.md")
	return sk, err
}

func readRegular(root *os.Root, p string, limit int64) (data []byte, exec bool, err error) {
	f, err := root.Open(p)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	data, err = io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("more than %d bytes", MaxBytes)
	}
	return data, info.Mode()&0o111 != 0, err
}

// Root is the host folder to mount read-only at /mnt/skills.
func (l *Library) Root() string { return l.root }

// List gives all skills by name.
func (l *Library) List() []Skill {
	all := make([]Skill, 0, len(l.skills))
	for _, s := range l.skills {
		all = append(all, s)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Name < all[j].Name })
	return all
}

// Argv is the command line, inside a sandbox, of a script of a skill. NotFound: no such skill or
// script; Invalid: the path leaves the skill; NotSupported: nothing says what runs it.
func (l *Library) Argv(name, script string) ([]string, error) {
	sk, ok := l.skills[name]
	if !ok {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no skill %.80q", name)
	}
	if !filepath.IsLocal(script) {
		return nil, sandbox.Errorf(sandbox.Invalid, "script %.200q: give a path relative to the skill, such as scripts/run.py", script)
	}
	root, err := os.OpenRoot(filepath.Join(l.root, sk.Category, sk.Name))
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the skill cannot be read")
	}
	defer root.Close()
	info, err := root.Stat(script)
	if err != nil || !info.Mode().IsRegular() {
		return nil, sandbox.Errorf(sandbox.NotFound, "skill %q has no script %.200q", name, script)
	}
	head, _, err := readHead(root, script)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the script cannot be read")
	}
	argv, err := Interpreter(head, script)
	if err != nil {
		return nil, err
	}
	return append(argv, path.Join(path.Dir(sk.Location), filepath.ToSlash(script))), nil
}

// maxShebang is Linux's own limit of a #! line (BINPRM_BUF_SIZE).
const maxShebang = 256

func readHead(root *os.Root, p string) (string, bool, error) {
	f, err := root.Open(p)
	if err != nil {
		return "", false, err
	}
	defer f.Close()
	buf := make([]byte, maxShebang)
	n, err := io.ReadFull(f, buf)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", false, err
	}
	return string(buf[:n]), n == maxShebang, nil
}
