package ociconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// MakeMountPoints makes, in a root file system that lies in a folder of the host, the places of all mounts
// that every sandbox has. A runtime makes what is missing by itself, but not in a user namespace, where the
// root file system is not its own. It also makes sandbox.Links. NotSupported: the image leaves no room for one.
func MakeMountPoints(root *os.Root) error {
	for _, target := range hardening.MountPoints() {
		if err := makeFolder(root, target); err != nil {
			return noRoom(err, target)
		}
	}
	files := []string{sandbox.DaemonPath}
	for _, name := range hardening.NewEtcFiles(sandbox.Spec{}, nil, nil).Names() {
		files = append(files, "/etc/"+name)
	}
	for _, target := range files {
		if err := makeFile(root, target); err != nil {
			return noRoom(err, target)
		}
	}
	for _, link := range sandbox.Links() {
		if err := makeLink(root, link); err != nil {
			return noRoom(err, link.Name)
		}
	}
	return nil
}

// MakeMountPointsOf makes the mount points of a Spec's own mounts, and of the replacements of the image's
// volumes. Mount points within another mount or a tmpfs are not in the root file system.
func MakeMountPointsOf(root *os.Root, spec sandbox.Spec, volumes []hardening.Tmpfs) error {
	var covered []string
	for _, t := range hardening.TmpfsMounts(spec.Limits) {
		covered = append(covered, t.Target)
	}
	var targets []string
	for _, v := range volumes {
		// A volume is the image's own word, so it goes before a link of ours.
		if err := removeLink(root, v.Target); err != nil {
			return noRoom(err, v.Target)
		}
		targets = append(targets, v.Target)
	}
	for _, m := range spec.Mounts {
		targets = append(targets, m.Target)
	}
	for _, target := range targets {
		if !within(target, covered) {
			if err := makeFolder(root, target); err != nil {
				return noRoom(err, target)
			}
		}
		covered = append(covered, target)
	}
	return nil
}

func within(target string, dirs []string) bool {
	for _, dir := range dirs {
		if target == dir || strings.HasPrefix(target, dir+"/") {
			return true
		}
	}
	return false
}

func noRoom(err error, target string) error {
	return sandbox.Wrap(sandbox.NotSupported, err, "the template's image has no room for %s", target)
}

func makeFolder(root *os.Root, target string) error {
	name := strings.TrimPrefix(target, "/")
	if err := root.MkdirAll(name, 0o755); err != nil {
		return err
	}
	info, err := root.Stat(name)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a folder", name)
	}
	return err
}

// makeLink makes a link, unless the image has something of its own there. Debian's images have an empty /var/tmp, which no
// sandbox could write to: a link that leads to no files of the thread takes the place of an empty folder.
func makeLink(root *os.Root, link sandbox.Link) error {
	name := link.Name[1:]
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if dir := path.Dir(link.Name); dir != "/" {
			if err := makeFolder(root, dir); err != nil {
				return err
			}
		}
	case err != nil:
		return err
	case !info.IsDir() || link.Target != sandbox.TmpDir:
		return nil
	default:
		err := root.Remove(name)
		if errors.Is(err, unix.ENOTEMPTY) {
			return nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := root.Symlink(link.Target, name); !errors.Is(err, fs.ErrExist) { // another server has the same folder
		return err
	}
	return nil
}

// removeLink removes a link that makeLink made.
func removeLink(root *os.Root, target string) error {
	for _, link := range sandbox.Links() {
		if link.Name != target {
			continue
		}
		if to, err := root.Readlink(target[1:]); err == nil && to == link.Target {
			return root.Remove(target[1:])
		}
	}
	return nil
}

func makeFile(root *os.Root, target string) error {
	name := strings.TrimPrefix(target, "/")
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case info.Mode().IsRegular():
		return nil
	case info.Mode()&fs.ModeSymlink != 0:
		// As resolv.conf often is: a link to a file of a running host. Nothing could be mounted there.
		if err := root.Remove(name); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%s is not a file", name)
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}
