package quota

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Inspect says what Open would find, without making an image, mounting one or converting anything. It tries
// the quotas of a data folder that is there, with files that it removes. An error says why Open would fail.
func Inspect(ctx context.Context, o Options) (State, error) {
	at, err := nearest(filepath.Join(o.Data, "tenants"))
	if err != nil {
		return State{}, err
	}
	file := filepath.Join(o.Data, imageName)
	info, err := os.Stat(file)
	switch {
	case err == nil:
		m, err := mountedAt(at)
		if err != nil || !m.isLoopOf(file) {
			return State{Enforced: true, How: fmt.Sprintf("an image of %d MiB, which the server mounts when it starts", info.Size()>>20)}, err
		}
	case o.Mode == Image || o.Mode == Auto && o.ImageBytes > 0:
		if why := noImage(); why != "" {
			return State{}, errors.New("no image can be made: " + why)
		}
		return State{Enforced: true, How: fmt.Sprintf("an image of %d MiB, which the server makes when it starts", o.ImageBytes>>20)}, nil
	}
	how, err := find(at)
	if _, e := os.Stat(o.Data); err == nil && e == nil && ctx.Err() == nil {
		err = probe(how, at)
	}
	if err != nil {
		if o.Mode == Kernel {
			return State{}, err
		}
		hint := "an image (disk_image_mib) may do it"
		why := noImage()
		if size, e := firstSize(o.Data); why == "" && e == nil && size > 0 {
			return State{Enforced: true, How: fmt.Sprintf("an image of %d MiB, which the server makes when it starts", size>>20)}, nil
		}
		if why != "" {
			hint = "an image cannot be made either (" + why + ")"
		}
		return State{How: fmt.Sprintf("%v; %s. The server bounds only what it writes itself", err, hint)}, nil
	}
	return State{Enforced: true, How: how.(fmt.Stringer).String()}, nil
}

// nearest returns the folder itself, or the nearest above it that is there.
func nearest(dir string) (string, error) {
	for {
		_, err := os.Stat(dir)
		if !errors.Is(err, os.ErrNotExist) || dir == filepath.Dir(dir) {
			return dir, err
		}
		dir = filepath.Dir(dir)
	}
}

// noImage says why no image can be made, or "".
func noImage() string {
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		return "there are no loop devices"
	}
	var missing []string
	for _, k := range kinds { // whether the kernel counts in them shows only when they are mounted
		if _, err := exec.LookPath(k.make[0]); err == nil {
			return ""
		}
		missing = append(missing, k.make[0])
	}
	return "there is no " + strings.Join(missing, " and no ")
}
