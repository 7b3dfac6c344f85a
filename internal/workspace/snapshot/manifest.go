package snapshot

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Limits of what is kept of one thread.
const (
	maxEntries   = 250_000
	maxDepth     = 128 // of folders, as for the file API
	maxPathBytes = 4096
	maxScanBytes = 64 << 20 // of all paths, and of the targets of links
	partBytes    = 4 << 20  // of a file; a growing file is sent from its last part on
	packBytes    = 8 << 20  // of file content in one object, about
	maxPackBytes = 16 << 20 // more is no pack
	maxHeadBytes = 16 << 20
	maxFileBytes = 256 << 30 // the list of its parts fits into a pack
	maxAbout     = 8 << 20
)

// folders are the entries of a thread's folder.
var folders = []string{"workspace", "uploads", "outputs"}

// sum is a SHA-256.
type sum [32]byte

// MarshalText writes it in hex.
func (s sum) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, s[:]), nil }

// UnmarshalText reads it in hex.
func (s *sum) UnmarshalText(text []byte) error {
	if len(text) != 2*len(s) {
		return fmt.Errorf("%.80q is no SHA-256", text)
	}
	_, err := hex.Decode(s[:], text)
	return err
}

// chunk says where bytes are: Bytes of them from At on in what is packed in Pack. Without a pack they are zeros.
type chunk struct {
	Sum   sum    `json:"sum,omitzero"`
	Pack  string `json:"pack,omitempty"`
	At    int64  `json:"at,omitempty"`
	Bytes int64  `json:"n"`
}

// Kinds of entries.
const (
	kindFile   = "f"
	kindFolder = "d"
	kindLink   = "l"
	kindHard   = "h" // another name of a file that came before
)

// name is a path or a link's target: any bytes but NUL. In JSON a name that is not UTF-8 begins with a NUL and is in hex.
type name string

// MarshalJSON writes it.
func (n name) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(n)) {
		return json.Marshal(string(n))
	}
	return json.Marshal("\x00" + hex.EncodeToString([]byte(n)))
}

// UnmarshalJSON reads it.
func (n *name) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	if raw, ok := strings.CutPrefix(s, "\x00"); ok {
		b, err := hex.DecodeString(raw)
		if err != nil {
			return err
		}
		s = string(b)
	}
	*n = name(s)
	return nil
}

// entry is a file, a folder or a link of a thread.
type entry struct {
	Path   name    `json:"path"` // below the thread's folder: "workspace/a.txt"
	Kind   string  `json:"kind"`
	Mode   uint32  `json:"mode,omitempty"` // permissions
	Time   int64   `json:"time,omitempty"` // of the last change: nanoseconds since 1970
	Bytes  int64   `json:"bytes,omitempty"`
	Target name    `json:"to,omitempty"` // of links; for another name of a file that file's path
	Chunks []chunk `json:"chunks,omitempty"`
}

// head is what is kept of a thread, as one object, which is written last.
type head struct {
	Format  int       `json:"format"`
	ID      string    `json:"id"`     // of the snapshot
	Holder  string    `json:"holder"` // the data folder that goes on with the thread
	Written time.Time `json:"written"`
	Deleted bool      `json:"deleted,omitempty"` // the thread is; nothing else is kept of it
	Files   int       `json:"files"`             // entries
	Bytes   int64     `json:"bytes"`             // of files, holes included
	// About is what the orchestrator wants to know of the thread when it comes back.
	About []byte           `json:"about,omitempty"`
	Tree  []chunk          `json:"tree,omitempty"`  // the list of entries, in segments
	Packs map[string]int64 `json:"packs,omitempty"` // bytes of content in each
}

// listBytes is how long the list of entries is.
func (h *head) listBytes() (n int64) {
	for _, c := range h.Tree {
		n += c.Bytes
	}
	return n
}

const format = 1

func readHead(text []byte) (*head, error) {
	var h head
	if err := json.Unmarshal(text, &h); err != nil {
		return nil, err
	}
	switch {
	case h.Format != format:
		return nil, fmt.Errorf("its format is %d, this server knows %d", h.Format, format)
	case h.ID == "" || h.Files < 0 || h.Files > maxEntries || h.Bytes < 0 || len(h.About) > maxAbout:
		return nil, fmt.Errorf("it is incomplete, or beyond the limits")
	}
	for _, c := range h.Tree {
		if err := c.check(h.Packs); err != nil || c.Pack == "" {
			return nil, fmt.Errorf("a segment of its list is nowhere: %w", err)
		}
	}
	for id, n := range h.Packs {
		if !plainID(id) || n < 0 || n > maxPackBytes {
			return nil, fmt.Errorf("pack %.80q cannot be", id)
		}
	}
	return &h, nil
}

func plainID(id string) bool {
	return len(id) == 36 && strings.Trim(id, "0123456789abcdef-") == ""
}

// check says what is wrong with a chunk.
func (c chunk) check(packs map[string]int64) error {
	if c.Bytes < 0 || c.At < 0 {
		return fmt.Errorf("a chunk of %d bytes at %d cannot be", c.Bytes, c.At)
	}
	if c.Pack == "" {
		return nil
	}
	n, ok := packs[c.Pack]
	if !ok || c.Bytes > n || c.At > n-c.Bytes {
		return fmt.Errorf("a chunk of %d bytes at %d is not in pack %.80q", c.Bytes, c.At, c.Pack)
	}
	return nil
}

// segmentEvery is after how many entries a segment ends, on average: behind a path whose checksum says so, so that a
// new file changes one segment and not all behind it.
const (
	segmentEvery = 256
	segmentMost  = 4096 // entries
	segmentBytes = 2 << 20
)

// segments returns the text of all entries in parts.
func segments(entries []entry) ([][]byte, error) {
	var all [][]byte
	var text bytes.Buffer
	enc, n := json.NewEncoder(&text), 0
	for i := range entries {
		if err := enc.Encode(&entries[i]); err != nil {
			return nil, err
		}
		n++
		if text.Len() >= segmentBytes || n >= segmentMost || crc32.ChecksumIEEE([]byte(entries[i].Path))%segmentEvery == 0 {
			all = append(all, bytes.Clone(text.Bytes()))
			text.Reset()
			n = 0
		}
	}
	if text.Len() > 0 {
		all = append(all, text.Bytes())
	}
	return all, nil
}

// reader checks entries as they are read, one after the other.
type reader struct {
	packs   map[string]int64
	kinds   map[name]string
	entries []entry
	bytes   int64
}

func newReader(packs map[string]int64) *reader {
	return &reader{packs: packs, kinds: map[name]string{}}
}

// read takes the entries of one segment.
func (r *reader) read(segment []byte) error {
	for line := range bytes.Lines(segment) {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		if len(r.entries) == maxEntries {
			return fmt.Errorf("there are more than %d entries", maxEntries)
		}
		if err := r.check(&e); err != nil {
			return fmt.Errorf("%s: %w", strconv.QuoteToASCII(string(e.Path)), err)
		}
		r.kinds[e.Path] = e.Kind
		r.entries = append(r.entries, e)
	}
	return nil
}

// check makes sure that an entry lies in a folder that came before, so that nothing is written through a link.
func (r *reader) check(e *entry) error {
	if err := checkPath(string(e.Path)); err != nil {
		return err
	}
	if _, twice := r.kinds[e.Path]; twice {
		return fmt.Errorf("it is there twice")
	}
	i := strings.LastIndexByte(string(e.Path), '/')
	if i >= 0 && r.kinds[e.Path[:i]] != kindFolder {
		return fmt.Errorf("it lies in no folder")
	}
	if i < 0 && e.Kind != kindFolder {
		return fmt.Errorf("it is to be a folder")
	}
	if e.Mode&^0o1777 != 0 {
		return fmt.Errorf("mode %o cannot be", e.Mode)
	}
	if e.Kind != kindFile && (len(e.Chunks) > 0 || e.Bytes != 0) {
		return fmt.Errorf("only a file has content")
	}
	switch e.Kind {
	case kindFolder:
	case kindLink:
		if e.Target == "" || len(e.Target) > maxPathBytes || strings.IndexByte(string(e.Target), 0) >= 0 {
			return fmt.Errorf("a link with such a target cannot be")
		}
	case kindHard:
		if r.kinds[e.Target] != kindFile {
			return fmt.Errorf("it is another name of what is no file")
		}
	case kindFile:
		return r.checkFile(e)
	default:
		return fmt.Errorf("kind %.20q is not known", e.Kind)
	}
	return nil
}

func (r *reader) checkFile(e *entry) error {
	left := e.Bytes
	if left < 0 || left > maxFileBytes {
		return fmt.Errorf("%d bytes cannot be", left)
	}
	for _, c := range e.Chunks {
		if err := c.check(r.packs); err != nil {
			return err
		}
		if c.Bytes == 0 || c.Bytes > left {
			return fmt.Errorf("its chunks are not its %d bytes", e.Bytes)
		}
		left -= c.Bytes
	}
	if left != 0 {
		return fmt.Errorf("its chunks are not its %d bytes", e.Bytes)
	}
	r.bytes += e.Bytes
	return nil
}

// checkPath makes sure that a path leads into one of the folders by plain names.
func checkPath(p string) error {
	if len(p) > maxPathBytes || strings.IndexByte(p, 0) >= 0 {
		return fmt.Errorf("such a path cannot be")
	}
	depth := 0
	for part := range strings.SplitSeq(p, "/") {
		if part == "" || part == "." || part == ".." || len(part) > 255 {
			return fmt.Errorf("such a path cannot be")
		}
		depth++
	}
	top, _, _ := strings.Cut(p, "/")
	for _, f := range folders {
		if top == f && depth <= maxDepth {
			return nil
		}
	}
	return fmt.Errorf("such a path cannot be")
}

// broken is the error of an object that is not what was kept.
func broken(where, object string, err error) error {
	return sandbox.Wrap(sandbox.Unavailable, err, "%s/%s is damaged: %v; nothing was restored", where, object, err)
}
