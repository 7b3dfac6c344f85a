package store

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Format is the version of what servers keep in a data folder and in Redis. It grows with the first change that an
// older server would misread or harm. What was written before there were versions is format 1.
const Format = 1

const (
	formatFile = "format"
	formatKey  = "skerry:{:format}"
	// maxFormat bounds what is read of the file.
	maxFormat = 32 // bytes
)

// CheckFolder reports whether this server can read a data folder, and writes the version into a folder without one.
func CheckFolder(data string) error {
	file := filepath.Join(data, formatFile)
	stamp, text, err := lockedfile.Read(file, maxFormat)
	if err == nil && stamp == (lockedfile.Stamp{}) { // there is none
		text = fmt.Appendf(nil, "%d\n", Format)
		err = lockedfile.Replace(file, text)
	}
	if err != nil {
		return fmt.Errorf("data folder: its version cannot be read or written: %w", err)
	}
	return readable("the data folder "+data, file, strings.TrimSpace(string(text)))
}

// CheckFormat does the same for Redis. Embedded state is part of the data folder.
func (s *Store) CheckFormat(ctx context.Context) error {
	if s.embedded != nil {
		return nil
	}
	ctx, cancel := deadline(ctx)
	defer cancel()
	if err := s.rdb.SetNX(ctx, formatKey, Format, 0).Err(); err != nil {
		return failure(err)
	}
	text, err := s.rdb.Get(ctx, formatKey).Result()
	if err != nil {
		return failure(err)
	}
	return readable("the state in Redis", "the key "+formatKey, text)
}

// readable compares a version that was found with Format.
func readable(what, where, text string) error {
	found, err := strconv.Atoi(text)
	switch {
	case err != nil || found < 1:
		return sandbox.Errorf(sandbox.Invalid, "%s: %s holds %.20q, which is no version: restore it from a backup", what, where, text)
	case found > Format:
		return sandbox.Errorf(sandbox.NotSupported,
			"%s has format %d, and this server reads up to %d: a newer Skerry wrote it. Start that version, or restore a backup from before the upgrade", what, found, Format)
	}
	return nil
}
