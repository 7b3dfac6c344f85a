package pod

import (
	"fmt"
	"os"
	"path/filepath"
)

// MakeFolders makes the folders of mounts that are not there, and in that of a thread's files those that are copied. The
// root of a volume is the cluster's; what lies in it, and gets the modes that the server says, must be this process's own.
func MakeFolders(mounts []Mount) error {
	for _, m := range mounts {
		for _, dir := range append([]string{""}, Only(m.Target)...) {
			if err := os.MkdirAll(filepath.Join(m.Folder, dir), 0o755); err != nil {
				return fmt.Errorf("mount %s: %w", m.Target, err)
			}
		}
	}
	return nil
}
