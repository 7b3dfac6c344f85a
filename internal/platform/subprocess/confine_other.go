//go:build !linux

package subprocess

import "errors"

// confine fails: the limits, and the way to this program's own file, are Linux's.
func confine() error { return errors.New("a process cannot be limited here") }
