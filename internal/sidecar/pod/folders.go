package pod

import (
	"fmt"
	"os"
	"path/filepath"
)

// MakeFolders makes the missing folders of mounts, and the copied folders in that of a thread's files. The
// root of a volume is the cluster's. Files and folders in it, which get the server's modes, must be this
// process's own.
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
