package verify

import (
	"fmt"
	"path/filepath"

	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/audit/segment"
)

// SignedHeads returns the last signed head in the files of each writer of a folder, to be held elsewhere. It checks none.
func SignedHeads(dir string) ([]record.Head, error) {
	writers, err := segment.Writers(dir)
	if err != nil {
		return nil, fmt.Errorf("heads of the audit log: %w", err)
	}
	var heads []record.Head
	for _, w := range writers {
		segs, err := segment.List(filepath.Join(dir, w))
		if err != nil {
			return nil, fmt.Errorf("heads of the audit log: %w", err)
		}
		for i := len(segs) - 1; i >= 0; i-- {
			var last record.Head
			if _, err := segment.Scan(segs[i].Path, func(r record.Record) {
				if h, ok := record.HeadOf(r); ok {
					last = h
				}
			}); err != nil {
				return nil, fmt.Errorf("heads of the audit log: %w", err)
			}
			if last.Seq > 0 {
				heads = append(heads, last)
				break
			}
		}
	}
	return heads, nil
}
