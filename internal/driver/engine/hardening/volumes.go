package hardening

import (
	"path"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// MaxVolumes bounds the volumes of one image.
const MaxVolumes = 16

// VolumeMounts returns what takes the place of the folders that an image declares as volumes: memory file systems,
// empty, of the size of /tmp each, because an engine's volume would be bounded by nothing. Those in the place of a
// mount of ours are left to it, and those below a folder of ours are refused as NotSupported: they would hide it or
// parts of it. The result is sorted, a folder before what is in it.
func VolumeMounts(volumes []string, spec sandbox.Spec) ([]Tmpfs, error) {
	if len(volumes) > MaxVolumes {
		return nil, sandbox.Errorf(sandbox.NotSupported, "the template's image declares %d volumes, at most %d", len(volumes), MaxVolumes)
	}
	taken := []string{sandbox.DaemonPath}
	for _, m := range spec.Mounts {
		taken = append(taken, m.Target)
	}
	writable := make([]string, 0, 2)
	for _, t := range TmpfsMounts(spec.Limits) {
		writable = append(writable, t.Target)
	}
	var out []Tmpfs
	for _, v := range volumes {
		v = path.Clean("/" + v)
		switch {
		case slices.Contains(taken, v) || slices.Contains(writable, v):
		case strings.ContainsAny(v, "\x00,:") || v == "/" || reserved(v, taken):
			return nil, sandbox.Errorf(sandbox.NotSupported, "the template's image declares the volume %.200q, whose place is the sandbox's own", v)
		default:
			out = append(out, Tmpfs{Target: v, Bytes: spec.Limits.TmpBytes, Mode: 0o755})
		}
	}
	slices.SortFunc(out, func(a, b Tmpfs) int { return strings.Compare(a.Target, b.Target) })
	return slices.CompactFunc(out, func(a, b Tmpfs) bool { return a.Target == b.Target }), nil
}

// reserved reports whether a volume would lie in a folder that is made for the sandbox, or over one.
func reserved(v string, taken []string) bool {
	for _, ours := range slices.Concat(taken, MountPoints()) {
		inside := strings.HasPrefix(v, ours+"/") && ours != "/tmp" && ours != sandbox.HomeDir
		if v == ours || inside || strings.HasPrefix(ours, v+"/") {
			return true
		}
	}
	return false
}
