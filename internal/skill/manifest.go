package skill

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Manifest gives a skill with the digests of its files, which callers must not change. NotFound: no such
// skill.
func (l *Library) Manifest(name string) (sandbox.SkillManifest, error) {
	if known, ok := l.manifests.Load(name); ok {
		return known.(sandbox.SkillManifest), nil //nolint:forcetypeassert // nothing else is stored
	}
	sk, root, err := l.open(name)
	if err != nil {
		return sandbox.SkillManifest{}, err
	}
	defer root.Close()
	m := sandbox.SkillManifest{Name: sk.Name, Description: sk.Description, Location: sk.Location, Frontmatter: sk.Frontmatter}
	err = fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, _, err := readRegular(root, p, MaxBytes)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		m.Files = append(m.Files, sandbox.SkillFile{Path: p, Bytes: int64(len(data)), Digest: "sha256:" + hex.EncodeToString(sum[:])})
		return nil
	})
	if err != nil {
		return sandbox.SkillManifest{}, sandbox.Wrap(sandbox.Internal, err, "the skill cannot be read")
	}
	l.manifests.Store(name, m)
	return m, nil
}

// ReadFile gives one file of a skill. NotFound: no such skill or file.
func (l *Library) ReadFile(name, path string) ([]byte, error) {
	_, root, err := l.open(name)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	info, err := root.Lstat(filepath.FromSlash(path))
	if err != nil || !info.Mode().IsRegular() {
		return nil, sandbox.Errorf(sandbox.NotFound, "skill %q has no file %.200q", name, path)
	}
	data, _, err := readRegular(root, filepath.FromSlash(path), MaxBytes)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the skill cannot be read")
	}
	return data, nil
}

func (l *Library) open(name string) (Skill, *os.Root, error) {
	sk, ok := l.skills[name]
	if !ok {
		return Skill{}, nil, sandbox.Errorf(sandbox.NotFound, "there is no skill %.80q", name)
	}
	root, err := os.OpenRoot(filepath.Join(l.root, sk.Category, sk.Name))
	if err != nil {
		return Skill{}, nil, sandbox.Wrap(sandbox.Internal, err, "the skill cannot be read")
	}
	return sk, root, nil
}
