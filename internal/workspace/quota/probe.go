package quota

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	// probeUID owns what a probe writes: above what people are given, and far above those of workspaces.
	probeUID   = 2_100_000_000
	probeLimit = 1 << 20
	probeWrite = 4 << 20 // more than the limit and what a file system may be late
)

// probe makes a user with two threads and writes past the limit of one, and then past that of the user.
func probe(how enforcer, root string) (err error) {
	top, err := os.MkdirTemp(root, ".probe-")
	if err != nil {
		return err
	}
	dir := filepath.Join(top, "threads")
	var made []string
	defer func() {
		for i, t := range made {
			err = errors.Join(err, how.drop(t, probeUID+i))
		}
		err = errors.Join(err, how.drop(dir, probeUID), os.RemoveAll(top))
	}()
	if err := how.makeUser(dir); err != nil {
		return fmt.Errorf("probe of quotas: %w", err)
	}
	none, little := Limits{}, Limits{Bytes: probeLimit, Files: minFiles}
	for i, l := range []struct{ thread, user Limits }{{little, none}, {none, little}} {
		t := filepath.Join(dir, fmt.Sprint(i))
		if err := how.makeThread(t); err != nil {
			return fmt.Errorf("probe of quotas: %w", err)
		}
		made = append(made, t)
		if err := how.limit(t, dir, probeUID+i, l.thread, l.user); err != nil {
			return fmt.Errorf("probe of quotas: %w", err)
		}
		if err := tooMuch(filepath.Join(t, "file"), probeUID+i); err != nil {
			return err
		}
	}
	return nil
}

// tooMuch writes more than a limit as the server does, and fails unless that fails.
func tooMuch(name string, uid int) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(name)
	}()
	chunk := make([]byte, 256<<10)
	err = Hold(func() error {
		err := f.Chown(uid, uid)
		for n := 0; err == nil && n < probeWrite; n += len(chunk) {
			if _, err = f.Write(chunk); err == nil {
				err = f.Sync()
			}
		}
		return err
	})
	switch {
	case errors.Is(err, unix.EDQUOT), errors.Is(err, unix.ENOSPC):
		return nil
	case err != nil:
		return fmt.Errorf("probe of quotas: %w", err)
	}
	return errors.New("a quota was set and then not held")
}
