package skerry

import (
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of the server, so that a wrong folder is noticed before it is read.
const (
	maxSkillFiles = 512
	maxSkillBytes = 16 << 20
)

// leftOut is what editors, systems and tools leave in folders.
var leftOut = []string{"__pycache__", "node_modules", ".git", ".DS_Store", "__MACOSX", "Thumbs.db", "desktop.ini"}

// SkillFolder reads a skill's folder of this machine, as it is now, for Thread.AddSkill: the thread alone has it, in
// place of what was attached under the name of the folder. The folder is not needed afterwards.
func SkillFolder(folder string) (s VirtualSkill, err error) {
	abs, err := filepath.Abs(folder)
	if err != nil {
		return s, err
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return s, err
	}
	defer root.Close()
	if info, err := root.Stat("SKILL.md"); err != nil || !info.Mode().IsRegular() {
		return s, fmt.Errorf("skerry: %s is no skill's folder: it has no SKILL.md", folder)
	}
	texts, binary, size := map[string]string{}, map[string]string{}, 0
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case slices.Contains(leftOut, d.Name()) && d.IsDir():
			return fs.SkipDir
		case d.IsDir() || slices.Contains(leftOut, d.Name()) || strings.HasSuffix(name, ".pyc"):
			return nil
		case d.Type()&fs.ModeSymlink != 0:
			return fmt.Errorf("skerry: %s in %s is a symbolic link: put the file itself in its place", name, folder)
		case !d.Type().IsRegular():
			return nil
		case len(texts)+len(binary) == maxSkillFiles:
			return fmt.Errorf("skerry: %s has more than %d files", folder, maxSkillFiles)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Size() > int64(maxSkillBytes-size) {
			return fmt.Errorf("skerry: the files of %s have more than %d bytes", folder, maxSkillBytes)
		}
		data, err := root.ReadFile(name)
		if err != nil {
			return err
		}
		size += len(data)
		if utf8.Valid(data) {
			texts[name] = string(data)
		} else {
			binary[name] = base64.StdEncoding.EncodeToString(data)
		}
		return nil
	})
	if err != nil {
		return s, err
	}
	return VirtualSkill{Name: filepath.Base(abs), Files: texts, BinaryFiles: binary, Replace: true}, nil
}
