package hardening

import (
	"archive/tar"
	"bytes"
	"io"
	"strings"
)

// EmptyRootfs gives, as a tar archive, a root file system that holds nothing but the mount points.
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
