package oci

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// etcDir is the folder of a bundle with the files that lie over those of the image in /etc.
const etcDir = "etc"

// etcFiles are the files of /etc that differ between sandboxes, by name. They make localhost and
// the sandbox's own name resolve, give its uid a name (Node's os.userInfo and Python's getpass fail
// without one), and hide the host's name servers, which are out of reach anyway.
type etcFiles map[string][]byte

// newEtcFiles makes the files for a sandbox. passwd and group are those of the image; when nil, short
// ones are made.
func newEtcFiles(uid int, hostname string, passwd, group []byte) etcFiles {
	if passwd == nil {
		passwd = []byte("root:x:0:0:root:/root:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n")
	}
	if group == nil {
		group = []byte("root:x:0:\ntty:x:5:\nnogroup:x:65534:\n")
	}
	return etcFiles{
		"passwd":      addLine(passwd, fmt.Sprintf("agent:x:%d:%d:agent:%s:/bin/sh", uid, uid, sandbox.HomeDir)),
		"group":       addLine(group, fmt.Sprintf("agent:x:%d:", uid)),
		"hostname":    []byte(hostname + "\n"),
		"hosts":       fmt.Appendf(nil, "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\t%s\n", hostname),
		"resolv.conf": nil,
	}
}

func addLine(text []byte, line string) []byte {
	text = bytes.Clone(text)
	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(text, '\n')
	}
	return append(append(text, line...), '\n')
}

func (e etcFiles) names() []string { return slices.Sorted(maps.Keys(e)) }

// write puts the files into dir, which it makes.
func (e etcFiles) write(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for name, data := range e {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// mounts bind the files of the bundle over those of the image.
func (e etcFiles) mounts(bundle string) []specs.Mount {
	out := make([]specs.Mount, 0, len(e))
	for _, name := range e.names() {
		out = append(out, bindFile(filepath.Join(bundle, etcDir, name), "/etc/"+name))
	}
	return out
}

// bindFile mounts one file, read-only.
func bindFile(source, target string) specs.Mount {
	return specs.Mount{Type: "bind", Source: source, Destination: target, Options: []string{"bind", "ro", "nosuid", "nodev", "rprivate"}}
}
