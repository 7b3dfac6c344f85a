//go:build !amd64

package main

import (
	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/attack/wire"
)

// Other machines have neither.
func modifyLDT(wire.Facts) (string, error) { return "", unix.ENOSYS }

func int80(wire.Facts) (string, error) { return "", unix.ENOSYS }

func ownPIDBy32([]string) error { return unix.ENOSYS }
