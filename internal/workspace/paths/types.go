package paths

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"time"
)

// Limits of the operations.
const (
	MaxReadBytes     = 500_000   // content of one Read
	DefaultReadLines = 2000      // of one Read
	MaxScanBytes     = 256 << 20 // largest file that Read counts the lines of
	MaxEditBytes     = 16 << 20  // largest file that Edit changes
	MaxEntries       = 10_000    // of one List or Glob, and of a Snapshot
	MaxEntryBytes    = 4 << 20   // of the paths and links of these together
	DefaultMatches   = 100       // of one Grep
	MaxMatches       = 1000
	MaxGrepFileBytes = 10 << 20 // larger files are passed over
	MaxContextLines  = 10
	MaxPatternBytes  = 1000
	MaxHashBytes     = 10 << 20 // larger files have no hash in Changes

	MaxArchiveBytes   = 1 << 30 // of an archive for Unpack, or the thread's quota when that is less
	MaxArchivedBytes  = 8 << 30 // of the files in an archive, or the room that the thread has
	MaxArchiveEntries = 100_000
	maxArchiveNames   = 16 << 20 // bytes of all names in an archive, and of the directory of a ZIP archive

	GlobBudget   = 5 * time.Second
	GrepBudget   = 15 * time.Second
	WalkBudget   = 15 * time.Second // of List, Usage, Snapshot and Changes
	UnpackBudget = 15 * time.Minute // of an Unpack of an archive that is here
)

// Text is a part of a file, by lines. Encoding is "utf-8" or, for a file that is not text,
// "base64"; then Content is the first MaxReadBytes of it at most and there are no lines.
type Text struct {
	Path       string    `json:"path"`
	Content    string    `json:"content"`
	Encoding   string    `json:"encoding"`
	Bytes      int64     `json:"bytes"` // of the whole file
	TotalLines int       `json:"total_lines"`
	StartLine  int       `json:"start_line"`            // of the first line in Content, counted from 1; 0 when there is none
	EndLine    int       `json:"end_line"`              // of the last one
	NextOffset *int      `json:"next_offset,omitempty"` // offset of the next Read; nil at the end
	Truncated  bool      `json:"truncated,omitempty"`   // a line, or a binary file, was longer than MaxReadBytes and its rest is left out
	ModifiedAt time.Time `json:"modified_at"`
}

// Entry is one file, folder or symbolic link.
type Entry struct {
	Path       string    `json:"path"`
	IsDir      bool      `json:"is_dir"`
	Bytes      int64     `json:"bytes"`
	Mode       string    `json:"mode"` // octal permissions: "0644"
	ModifiedAt time.Time `json:"modified_at"`
	Symlink    string    `json:"symlink,omitempty"` // target of a symbolic link
}

// Listing is what List and Glob found. Truncated: a limit of count, depth or time was reached.
type Listing struct {
	Items     []Entry `json:"items"`
	Truncated bool    `json:"truncated"`
}

// Tree is files that a sandbox serves, beside those of its thread. Paths are absolute; what the sandbox's user may not do is
// Forbidden.
type Tree interface {
	// Stat describes what is at a path. A link is not followed. NotFound.
	Stat(ctx context.Context, at string) (Entry, error)
	// List lists a folder, depth levels deep, at most limit entries.
	List(ctx context.Context, at string, depth, limit int) (Listing, error)
	// Read writes a regular file to w.
	Read(ctx context.Context, at string, w io.Writer) error
	// Write replaces a file in one step, makes its folders, and returns how many bytes it has. QuotaExceeded.
	Write(ctx context.Context, at string, r io.Reader) (int64, error)
	// Mkdir makes a folder and its parents. It is no error when it is there.
	Mkdir(ctx context.Context, at string) (Entry, error)
	// Move renames a file or folder. Conflict: something is at the target, or it lies on another file system.
	Move(ctx context.Context, from, to string) (Entry, error)
	// Remove removes a file, or a folder with all in it. NotFound.
	Remove(ctx context.Context, at string) error
}

// Written is what Write did. Bytes is the size of the file now, Added what this call wrote.
type Written struct {
	Path    string `json:"path"`
	Bytes   int64  `json:"bytes"`
	ETag    string `json:"etag" doc:"Of the file as this call left it, for If-Match"`
	Added   int64  `json:"-"`
	Created bool   `json:"-"`
}

// Edited is what Edit did. Bytes is the size of the file now.
type Edited struct {
	Path        string `json:"path"`
	Occurrences int    `json:"occurrences"`
	Bytes       int64  `json:"-"`
}

// GrepOptions say what Grep looks for in the files below a path.
type GrepOptions struct {
	Pattern    string // at most MaxPatternBytes
	Regexp     bool   // Pattern is an RE2 expression, else literal text
	Glob       string // only files whose path below the folder matches, or whose name does when Glob has no slash
	IgnoreCase bool
	Context    int // lines before and after, at most MaxContextLines
	Max        int // matches; 0 = DefaultMatches, at most MaxMatches
}

// Match is one line that Grep found. Lines are cut at 2000 bytes.
type Match struct {
	Path   string   `json:"path"`
	Line   int      `json:"line"` // counted from 1
	Text   string   `json:"text"`
	Before []string `json:"before,omitempty"`
	After  []string `json:"after,omitempty"`
}

// Matches is what Grep found, sorted by path and line. Truncated: Max or the budget was reached.
type Matches struct {
	Items     []Match `json:"items"`
	Truncated bool    `json:"truncated"`
}

func modeText(m fs.FileMode) string { return fmt.Sprintf("%04o", m.Perm()) }
