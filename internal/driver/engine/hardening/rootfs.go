package hardening

import (
	"archive/tar"
	"bytes"
	"io"
	"strings"
)

// EmptyRootfs returns a tar archive of a root file system with nothing but the mount points.
func EmptyRootfs() (io.Reader, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, dir := range MountPoints() {
		header := &tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(dir, "/") + "/", Mode: 0o755}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
	}
	return &buf, w.Close()
}
