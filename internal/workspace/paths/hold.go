package paths

import (
	"io"
	"os"
)

// hold calls do so that the kernel's limits hold what it writes.
func (f *FS) hold(do func() error) error {
	if f.opts.Hold == nil {
		return do()
	}
	return f.opts.Hold(do)
}

// make makes a new file that belongs to the thread's user from the beginning, so that each block of it is
// counted for the thread when it is written.
func (f *FS) make(dir *os.Root, name string) (file *os.File, err error) {
	err = f.hold(func() error {
		if file, err = dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return err
		}
		if err = f.chown(file); err != nil {
			_ = file.Close()
			_ = dir.Remove(name)
		}
		return err
	})
	return file, err
}

// held returns a writer to the file that the kernel's limits hold.
func (f *FS) held(file *os.File) io.Writer {
	if f.opts.Hold == nil {
		return file
	}
	return heldWriter{file: file, hold: f.opts.Hold}
}

type heldWriter struct {
	file *os.File
	hold func(func() error) error
}

func (w heldWriter) Write(p []byte) (n int, err error) {
	err = w.hold(func() error {
		n, err = w.file.Write(p)
		return err
	})
	return n, err
}
