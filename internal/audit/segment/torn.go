package segment

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
)

// CutTorn moves aside what a crash left of records that no caller was told are durable. That is the
// beginning of a record at the end, or, after a power cut, pieces of several. Zeros lie between the pieces
// where the disk was not written yet. A signature behind such a hole says that the missing records were
// durable once: that is no crash, and is left for Verify.
func CutTorn(path string, log *slog.Logger) error {
	in, err := Scan(path, func(record.Record) {})
	if err != nil {
		return err
	}
	end := in.End
	if in.Hole >= 0 && in.Hole >= in.Head {
		end = in.Hole
	}
	return cutTail(path, end, log)
}

// cutTail moves what lies behind end to a file beside. Zeros are room that was made ahead, and stay.
func cutTail(path string, end int64, log *slog.Logger) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	last, err := End(f, end)
	if err != nil || last == end {
		return err
	}
	torn := fmt.Sprintf("%s.torn-%d", strings.TrimSuffix(path, Suffix), time.Now().UnixNano())
	aside, err := os.OpenFile(torn, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(aside, io.NewSectionReader(f, end, last-end))
	if err = errors.Join(err, aside.Sync(), aside.Close()); err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(end), f.Sync(), lockedfile.SyncDir(filepath.Dir(path))); err != nil {
		return err
	}
	log.Warn("the audit log ended in a torn record, which was moved aside",
		"segment", filepath.Base(path), "moved_to", filepath.Base(torn), "bytes", last-end)
	return nil
}
