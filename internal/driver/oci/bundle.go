package oci

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/procid"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Names in a bundle.
const (
	configFile = "config.json"
	recordFile = "record.json"
	pidFile    = "pid"
	logFile    = "runtime.log"
	etcDir     = "etc" // files that lie over those of the image in /etc
)

// A folder whose name begins with a dot holds a bundle that is being written or taken away. The rest
// of its name is the process that does so: ".<pid>.<start>.<random>".
const unfinishedPrefix = "."

// newUnfinished makes such a folder for this process.
func newUnfinished(bundles string) (string, error) {
	p := procid.This()
	return os.MkdirTemp(bundles, fmt.Sprintf("%s%d.%d.", unfinishedPrefix, p.PID, p.Start))
}

// isLeftOver reports whether name is of an unfinished folder whose process no longer exists.
func isLeftOver(name string) bool {
	rest, ok := strings.CutPrefix(name, unfinishedPrefix)
	if !ok {
		return false
	}
	var p procid.Process
	if _, err := fmt.Sscanf(rest, "%d.%d.", &p.PID, &p.Start); err != nil {
		return true
	}
	return !p.Alive()
}

// maxRecordBytes bounds a record: labels, and little else.
const maxRecordBytes = 1 << 20

// record is what this driver remembers of a sandbox.
type record struct {
	ID      sandbox.ID        `json:"id"`
	Runtime string            `json:"runtime"`
	Labels  map[string]string `json:"labels"`
	Created time.Time         `json:"created"`
	// Maker is the server that made the bundle. While it lives, a bundle without a container is starting;
	// after its exit the bundle is left over.
	Maker procid.Process `json:"maker"`
}

// writeBundle puts a whole bundle in place at once. An error that is os.ErrExist means that there is
// one already.
func writeBundle(bundles string, rec record, etc hardening.EtcFiles, build func(bundle string) (*specs.Spec, error)) error {
	dir, err := newUnfinished(bundles)
	if err != nil {
		return err
	}
	final := filepath.Join(bundles, string(rec.ID))
	if err := fillBundle(dir, final, rec, etc, build); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	if err := os.Rename(dir, final); err != nil {
		if errors.Is(err, os.ErrExist) || isNotEmpty(err) {
			err = os.ErrExist
		}
		return errors.Join(err, os.RemoveAll(dir))
	}
	return nil
}

func fillBundle(dir, final string, rec record, etc hardening.EtcFiles, build func(string) (*specs.Spec, error)) error {
	config, err := build(final)
	if err != nil {
		return err
	}
	if err := etc.Write(filepath.Join(dir, etcDir)); err != nil {
		return err
	}
	for name, value := range map[string]any{configFile: config, recordFile: rec} {
		data, err := json.Marshal(value)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// readRecord reads the record of one bundle. os.ErrNotExist: there is no such sandbox.
func readRecord(bundle string) (record, error) {
	var rec record
	info, err := os.Stat(filepath.Join(bundle, recordFile))
	if err != nil {
		return rec, err
	}
	if info.Size() > maxRecordBytes {
		return rec, fmt.Errorf("record of %d bytes is not ours", info.Size())
	}
	data, err := os.ReadFile(filepath.Join(bundle, recordFile))
	if err != nil {
		return rec, err
	}
	return rec, json.Unmarshal(data, &rec)
}

// readRecords reads the records of all bundles. It leaves out bundles that vanish meanwhile.
func readRecords(bundles string) ([]record, error) {
	ids, err := bundleIDs(bundles)
	if err != nil {
		return nil, err
	}
	out := make([]record, 0, len(ids))
	for _, id := range ids {
		rec, err := readRecord(filepath.Join(bundles, string(id)))
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return nil, fmt.Errorf("record of %s: %w", id, err)
		default:
			out = append(out, rec)
		}
	}
	return out, nil
}

func bundleIDs(bundles string) ([]sandbox.ID, error) {
	entries, err := os.ReadDir(bundles)
	if err != nil {
		return nil, err
	}
	ids := make([]sandbox.ID, 0, len(entries))
	for _, e := range entries {
		if id := sandbox.ID(e.Name()); hardening.CheckID(id) == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// removeBundle takes a bundle away: it vanishes under its name at once.
func removeBundle(bundles string, id sandbox.ID) error {
	trash, err := newUnfinished(bundles)
	if err != nil {
		return err
	}
	err = os.Rename(filepath.Join(bundles, string(id)), filepath.Join(trash, string(id)))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, os.RemoveAll(trash))
}

// sweepBundles removes what servers left that died while they wrote a bundle or took one away.
func sweepBundles(bundles string) error {
	entries, err := os.ReadDir(bundles)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !isLeftOver(e.Name()) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(bundles, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
