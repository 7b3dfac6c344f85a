package oci

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/ociconfig"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// mergedDirs are links into /usr on today's distributions, and folders of their own on older ones.
var mergedDirs = []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// hostEtc are the parts of the host's /etc that the programs of /usr need to work at all. Everything
// else in /etc stays the host's own.
var hostEtc = []string{
	"/etc/alternatives",
	"/etc/ca-certificates",
	"/etc/debian_version",
	"/etc/fonts",
	"/etc/ld.so.cache",
	"/etc/ld.so.conf",
	"/etc/ld.so.conf.d",
	"/etc/magic",
	"/etc/mime.types",
	"/etc/protocols",
	"/etc/python3",
	"/etc/services",
	"/etc/ssl/certs",
	"/etc/ssl/openssl.cnf",
}

// hostLinks are links of the host's root that are made again as they are.
var hostLinks = []string{"/etc/localtime", "/etc/os-release"}

const nsswitch = "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n"

// hostRootfs makes, under the driver's root, the skeleton of a root file system that consists of the host's
// /usr. It returns the mounts that fill it. Another call updates it.
func (d *Driver) hostRootfs(how ociconfig.Binding) (image, []specs.Mount, error) {
	d.hostRoot.Lock()
	defer d.hostRoot.Unlock()
	rootfs := filepath.Join(d.root, "host")
	mounts, err := makeSkeleton(rootfs, how)
	if err != nil {
		return image{}, nil, sandbox.Wrap(sandbox.Internal, err, "the root file system could not be prepared")
	}
	img, err := d.image.prepare(rootfs)
	// The skeleton's own passwd and group are empty mount points.
	img.passwd, img.group = nil, nil
	return img, mounts, err
}

func makeSkeleton(rootfs string, how ociconfig.Binding) ([]specs.Mount, error) {
	if err := os.MkdirAll(rootfs+"/etc", 0o755); err != nil {
		return nil, err
	}
	mounts := []specs.Mount{ociconfig.BindFolder("/usr", "/usr", true, how)}
	dirs := []string{"/usr", "/root", "/run", "/var", "/opt", "/srv"}
	for _, dir := range mergedDirs {
		info, err := os.Lstat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, err
		case info.IsDir():
			dirs = append(dirs, dir)
			mounts = append(mounts, ociconfig.BindFolder(dir, dir, true, how))
		default:
			if err := copyLink(dir, rootfs+dir); err != nil {
				return nil, err
			}
		}
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(rootfs+dir, 0o755); err != nil {
			return nil, err
		}
	}
	etc, err := makeEtc(rootfs, how)
	return append(mounts, etc...), err
}

func makeEtc(rootfs string, how ociconfig.Binding) ([]specs.Mount, error) {
	var mounts []specs.Mount
	for _, path := range hostEtc {
		info, err := os.Stat(path)
		if err != nil {
			continue // hosts differ, and none of these is needed by all programs
		}
		if info.IsDir() {
			mounts = append(mounts, ociconfig.BindFolder(path, path, true, how))
			err = os.MkdirAll(rootfs+path, 0o755)
		} else {
			mounts = append(mounts, ociconfig.BindFile(path, path))
			err = touch(rootfs + path)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, path := range hostLinks {
		if info, err := os.Lstat(path); err != nil || info.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		if err := copyLink(path, rootfs+path); err != nil {
			return nil, err
		}
	}
	for from, to := range map[string]string{"/var/tmp": "/tmp", "/var/run": "/run", "/etc/mtab": "/proc/self/mounts"} {
		if err := makeLink(to, rootfs+from); err != nil {
			return nil, err
		}
	}
	return mounts, writeOnce(rootfs+"/etc/nsswitch.conf", nsswitch)
}

// writeOnce leaves a file that is right already alone: sandboxes that run read it.
func writeOnce(name, text string) error {
	if have, err := os.ReadFile(name); err == nil && string(have) == text {
		return nil
	}
	return os.WriteFile(name, []byte(text), 0o644)
}

func copyLink(from, to string) error {
	target, err := os.Readlink(from)
	if err != nil {
		return err
	}
	return makeLink(target, to)
}

// makeLink makes a link, or points the existing one elsewhere without a moment in which there
// is none: sandboxes that run see the same folder.
func makeLink(target, name string) error {
	if have, err := os.Readlink(name); err == nil && have == target {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	tmp := name + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, tmp); err != nil {
		return err
	}
	return os.Rename(tmp, name)
}

func touch(name string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}
