package hardening

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// EtcFiles are the files of /etc that differ between sandboxes, by name. They make localhost and the
// sandbox's own name resolve. They name its uid, because Node's os.userInfo and Python's getpass fail
// without a name. They hide the host's name servers, which are out of reach anyway. A driver mounts them
// read-only over those of the image.
type EtcFiles map[string][]byte

// NewEtcFiles makes the files for a sandbox. passwd and group are those of the image; when nil, short
// ones are made.
func NewEtcFiles(spec sandbox.Spec, passwd, group []byte) EtcFiles {
	if passwd == nil {
		passwd = []byte("root:x:0:0:root:/root:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n")
	}
	if group == nil {
		group = []byte("root:x:0:\ntty:x:5:\nnogroup:x:65534:\n")
	}
	name := Hostname(spec)
	// localhost is 127.0.0.1 alone: the bridge listens there, and Node 18 tries only the first address.
	return EtcFiles{
		"passwd":      addLine(passwd, fmt.Sprintf("agent:x:%d:%d:agent:%s:/bin/sh", spec.UID, spec.UID, sandbox.HomeDir)),
		"group":       addLine(group, fmt.Sprintf("agent:x:%d:", spec.UID)),
		"hostname":    []byte(name + "\n"),
		"hosts":       fmt.Appendf(nil, "127.0.0.1\tlocalhost\n::1\tip6-localhost ip6-loopback\n127.0.1.1\t%s\n", name),
		"resolv.conf": nil,
	}
}

// Hostname returns the name of a sandbox.
func Hostname(spec sandbox.Spec) string {
	if spec.Hostname == "" {
		return DefaultHostname
	}
	return spec.Hostname
}

func addLine(text []byte, line string) []byte {
	text = bytes.Clone(text)
	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(text, '\n')
	}
	return append(append(text, line...), '\n')
}

// Names returns the names of the files, sorted.
func (e EtcFiles) Names() []string { return slices.Sorted(maps.Keys(e)) }

// Write puts the files into dir, which it makes. All may read them.
func (e EtcFiles) Write(dir string) error {
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
