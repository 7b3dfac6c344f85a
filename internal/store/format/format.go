// Package format knows the version of what servers keep in a data folder and in Redis.
package format

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Version grows with the first change that an older server would misread or harm. What was written before there were versions
// has 1.
const Version = 1

const (
	file = "format"
	// maxBytes bounds what is read of the file.
	maxBytes = 32
)

// CheckFolder reports whether this server can read a data folder, and writes the version into a folder without one.
func CheckFolder(data string) error {
	at := filepath.Join(data, file)
	stamp, text, err := lockedfile.Read(at, maxBytes)
	if err == nil && stamp == (lockedfile.Stamp{}) { // there is none
		text = fmt.Appendf(nil, "%d\n", Version)
		err = lockedfile.Replace(at, text)
	}
	if err != nil {
		return fmt.Errorf("data folder: its version cannot be read or written: %w", err)
	}
	return Check("the data folder "+data, at, strings.TrimSpace(string(text)))
}

// Check compares a version that was found somewhere with Version. Invalid: it is none; NotSupported: it is newer.
func Check(what, where, text string) error {
	found, err := strconv.Atoi(text)
	switch {
	case err != nil || found < 1:
		return sandbox.Errorf(sandbox.Invalid, "%s: %s holds %.20q, which is no version: restore it from a backup", what, where, text)
	case found > Version:
		return sandbox.Errorf(sandbox.NotSupported,
			"%s has format %d, and this server reads up to %d: a newer Skerry wrote it. Start that version, or restore a backup from before the upgrade", what, found, Version)
	}
	return nil
}
