package oci

import (
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/skerry-sandbox/skerry/internal/driver/hardening"
)

// etcDir is the folder of a bundle with the files that lie over those of the image in /etc.
const etcDir = "etc"

// etcMounts bind the files of the bundle over those of the image.
func etcMounts(e hardening.EtcFiles, bundle string) []specs.Mount {
	out := make([]specs.Mount, 0, len(e))
	for _, name := range e.Names() {
		out = append(out, bindFile(filepath.Join(bundle, etcDir, name), "/etc/"+name))
	}
	return out
}

// bindFile mounts one file, read-only.
func bindFile(source, target string) specs.Mount {
	return specs.Mount{Type: "bind", Source: source, Destination: target, Options: []string{"bind", "ro", "nosuid", "nodev", "rprivate"}}
}
