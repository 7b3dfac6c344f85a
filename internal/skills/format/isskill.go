package format

import (
	"os"
	"path/filepath"
)

// IsSkill reports whether a folder has a SKILL.md.
func IsSkill(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, "SKILL.md"))
	return err == nil && info.Mode().IsRegular()
}
