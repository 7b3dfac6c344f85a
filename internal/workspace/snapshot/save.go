package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// saveTries bounds how often Save starts again because the saved state was not what this data folder knew.
const saveTries = 3

// Thread is what Save needs to know of a thread besides its name.
type Thread struct {
	Dir string // the folder with its files
	UID int    // that owns them: a folder of another one has taken its place
	// About is asked when a snapshot is written. Its text comes back with the files.
	About func() ([]byte, error)
	// Whole: About is asked, too, when no file has changed.
	Whole bool
}

// Save writes a snapshot when the thread's files are not those of the last one. They may change meanwhile: it
// saves a file as it was when it was read, and the next Save sees another change. Without files it does
// nothing. Conflict: another server has gone on with the thread, or the folder is another one; the saved state
// stays. Errors of the store as Objects says: what was saved before is still whole.
func (s *Snapshots) Save(ctx context.Context, t sandbox.Thread, th Thread) error {
	unlock, err := indexes{s}.lock(ctx, t)
	if err != nil {
		return err
	}
	defer unlock()
	mark, err := lockedfile.Stat(looks{s}.pendingFile(t))
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the state of the thread's snapshots cannot be used")
	}
	if err := s.save(ctx, t, th); err != nil {
		if errors.Is(err, sandbox.Conflict) {
			looks{s}.forgetLook(t)
		}
		return err
	}
	if now, err := lockedfile.Stat((looks{s}).pendingFile(t)); err == nil && now == mark && mark != (lockedfile.Stamp{}) {
		_ = os.Remove(looks{s}.pendingFile(t)) // else it is saved once more
	}
	return nil
}

func (s *Snapshots) save(ctx context.Context, t sandbox.Thread, th Thread) error {
	root, err := openThread(th.Dir, th.UID)
	if root == nil || err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // read-only
	large := s.largeThread(ctx)
	defer large.done()
	if err := (indexes{s}).waitIfLarge(large, t); err != nil {
		return err
	}
	idx := indexes{s}.readIndex(t)
	found, err := scan(ctx, root, maxScanBytes, large.wait)
	if err != nil {
		return err
	}
	if idx != nil && !th.Whole && same(idx.Entries, found) {
		return nil
	}
	about, err := th.About()
	if err != nil {
		return err
	}
	if len(about) > maxAbout {
		return sandbox.Errorf(sandbox.QuotaExceeded, "what is known of the thread is more than %d bytes", maxAbout)
	}
	if idx != nil && idx.About == sha256.Sum256(about) && same(idx.Entries, found) {
		return nil
	}
	w := &writer{s: s, ctx: ctx, t: t, root: root, about: about, known: map[sum]chunk{}, began: time.Now()}
	for range saveTries {
		if err = w.write(idx, slices.Clone(found)); !errors.Is(err, errAgain) {
			break
		}
		idx = nil
	}
	if w.tried && s.o.Meter != nil {
		s.o.Meter.Kept(err, time.Since(w.began), w.sent)
	}
	return err
}

// openThread opens the folder of a thread; nil: it is not there. Conflict: it is another one.
func openThread(dir string, uid int) (*os.Root, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // the thread no longer exists
	}
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Internal, err, "the thread's files cannot be opened")
	}
	info, err := root.Lstat(folders[0])
	if err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == uid {
			return root, nil
		}
		err = sandbox.Errorf(sandbox.Conflict, "the thread has other files by now: another server went on with it")
	} else {
		err = sandbox.Wrap(sandbox.Internal, err, "the thread's files cannot be opened")
	}
	return nil, errors.Join(err, root.Close())
}

// same says that nothing changed between two looks, for sure.
func same(before, now []seen) bool {
	return slices.EqualFunc(before, now, func(a, b seen) bool {
		return !a.Racy && alike(a, b) && (a.Entry.Kind != kindFile || a.At == b.At)
	})
}

// alike says that two looks show the same, but for the content of files.
func alike(a, b seen) bool {
	x, y := a.Entry, b.Entry
	return x.Path == y.Path && x.Kind == y.Kind && x.Mode == y.Mode && x.Time == y.Time && x.Bytes == y.Bytes && x.Target == y.Target
}

// errAgain says that what is kept was not what the index says.
var errAgain = errors.New("begin again")

// writer writes one snapshot.
type writer struct {
	s     *Snapshots
	ctx   context.Context
	t     sandbox.Thread
	root  *os.Root
	about []byte

	base    *index // what is kept now; nil: nothing that counts
	version string
	known   map[sum]chunk       // content that is kept, or will be
	drop    map[string]struct{} // packs with so little in use that it is packed anew
	pack    *packer
	buffer  []byte

	began time.Time
	tried bool // the store was asked
	sent  int64
}

// write makes a snapshot of what was found. errAgain: idx, which may be nil, is not what is kept.
func (w *writer) write(idx *index, found []seen) error {
	w.base, w.version = idx, ""
	clear(w.known)
	if idx == nil {
		if err := w.join(); err != nil {
			return err
		}
	} else {
		w.version = idx.Version
	}
	w.plan(found)
	w.pack = w.s.newPacker(w.ctx, w.t)
	defer func() { w.sent += w.pack.sent.Load() }()
	found, err := w.readAll(found)
	if err == nil && w.base != nil && w.base.About == sha256.Sum256(w.about) && sameContent(w.base.Entries, found) {
		return w.unchanged(found)
	}
	w.tried = true
	var h *head
	if err == nil {
		h, err = w.describe(found)
	}
	if err != nil { // before anybody can have seen the snapshot
		w.pack.undo()
		return err
	}
	return w.publish(h, found)
}

// join takes what is kept as the base, without knowing what the files were then.
func (w *writer) join() error {
	w.tried = true
	h, version, err := w.s.head(w.ctx, w.t)
	if err != nil {
		return err
	}
	w.version = version
	switch {
	case h == nil || h.Deleted: // and this is another thread of its name
		return nil
	case h.Holder != w.s.o.Holder || !indexes{w.s}.vouches(w.t, nil, h): // whether what is here is newer is unknown
		return errMoved
	}
	entries, err := w.s.entries(w.ctx, w.t, h, nil)
	if err != nil {
		return err
	}
	w.base = &index{Version: version, Head: *h, About: sha256.Sum256(h.About), Entries: make([]seen, len(entries)), Count: sweepEvery}
	for i, e := range entries {
		w.base.Entries[i] = seen{Entry: e, Racy: true}
	}
	return nil
}

var errMoved = sandbox.Errorf(sandbox.Conflict, "another server has gone on with the thread, so that what changed here cannot be kept; try again")

// unchanged remembers what was looked at: content is what it was.
func (w *writer) unchanged(found []seen) error {
	idx := *w.base
	idx.Entries = found
	return w.remember(&idx)
}

func (w *writer) remember(idx *index) error {
	if err := (indexes{w.s}).writeIndex(w.t, idx); err != nil {
		// What is kept is right; what this folder knows of it is found out the next time.
		w.s.o.Log.Warn("what is kept of a thread is not noted", "thread", w.t.String(), "error", err)
	}
	return nil
}

func sameContent(a, b []seen) bool {
	return slices.EqualFunc(a, b, func(a, b seen) bool {
		return alike(a, b) && slices.EqualFunc(a.Entry.Chunks, b.Entry.Chunks, func(x, y chunk) bool { return x.Sum == y.Sum && x.Bytes == y.Bytes && (x.Pack == "") == (y.Pack == "") })
	})
}

// A pack of which less than a third is in use is packed anew, and so are small ones when there are many: a thread whose
// files change one by one is restored from few objects all the same.
const (
	leastUse  = 3
	smallPack = 1 << 20
	mostSmall = 32
)

// plan says what can be referred to, and what is packed anew.
func (w *writer) plan(found []seen) {
	w.drop = map[string]struct{}{}
	if w.base == nil {
		return
	}
	use := map[string]int64{}
	counted := map[sum]struct{}{}
	count := func(c chunk) {
		if _, twice := counted[c.Sum]; c.Pack != "" && !twice {
			counted[c.Sum] = struct{}{}
			use[c.Pack] += c.Bytes
		}
	}
	for i := range w.base.Entries {
		for _, c := range w.base.Entries[i].Entry.Chunks {
			count(c)
		}
	}
	for _, c := range w.base.Head.Tree {
		count(c)
	}
	if !slices.EqualFunc(w.base.Entries, found, alike) { // else nothing may have changed at all
		var small []string
		for id, size := range w.base.Head.Packs {
			switch {
			case use[id]*leastUse < size:
				w.drop[id] = struct{}{}
			case use[id] < smallPack:
				small = append(small, id)
			}
		}
		if len(small) > mostSmall {
			for _, id := range small {
				w.drop[id] = struct{}{}
			}
		}
	}
	for i := range w.base.Entries {
		for _, c := range w.base.Entries[i].Entry.Chunks {
			w.know(c)
		}
	}
}

func (w *writer) know(c chunk) {
	if _, dropped := w.drop[c.Pack]; c.Pack != "" && !dropped {
		w.known[c.Sum] = c
	}
}

// readAll fills in the content of files: it reads the ones that changed since the base.
func (w *writer) readAll(found []seen) ([]seen, error) {
	before := map[name]*seen{}
	if w.base != nil {
		for i := range w.base.Entries {
			before[w.base.Entries[i].Entry.Path] = &w.base.Entries[i]
		}
	}
	there := found[:0]
	moved := map[name]name{} // first names that vanished, and the names that take their place
	for _, f := range found {
		first := f.Entry.Target
		if to, ok := moved[first]; ok && f.Entry.Kind == kindHard {
			if f.Entry.Target = to; to == "" {
				f.Entry = entry{Path: f.Entry.Path, Kind: kindFile}
			}
		}
		if f.Entry.Kind == kindFile && !w.reuse(before[f.Entry.Path], &f) {
			ok, err := w.readFile(&f)
			if err != nil {
				return nil, err
			}
			if !ok {
				moved[f.Entry.Path] = ""
				continue
			}
			if _, ok := moved[first]; ok {
				moved[first] = f.Entry.Path
			}
		}
		there = append(there, f)
	}
	return there, nil
}

// reuse takes the content of a file that has not changed from the base.
func (w *writer) reuse(old, now *seen) bool {
	if old == nil || old.Racy || old.Entry.Kind != kindFile || old.At != now.At || old.Entry.Bytes != now.Entry.Bytes {
		return false
	}
	for _, c := range old.Entry.Chunks {
		if _, dropped := w.drop[c.Pack]; dropped {
			return false
		}
	}
	now.Entry.Chunks = old.Entry.Chunks
	return true
}

// readFile reads a file in parts; false: it is not there any more. It is what it was when it was opened, or has the
// beginning of a change.
func (w *writer) readFile(f *seen) (bool, error) {
	file, err := w.root.OpenFile(string(f.Entry.Path), os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return false, unlessVanished(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return false, unlessVanished(err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return false, nil
	}
	*f = describe(f.Entry.Path, st, time.Now().UnixNano())
	f.Entry.Kind = kindFile
	return true, w.readParts(file, &f.Entry, st.Size, st.Blocks*512)
}

// A file that has a few blocks in each of its parts would take little room and all the time there is.
const (
	mostSparse = 64 // times what it takes on the disk
	fairSparse = 256 << 20
)

func (w *writer) readParts(file *os.File, e *entry, size, onDisk int64) error {
	if size > maxFileBytes {
		return sandbox.Errorf(sandbox.QuotaExceeded, "%.200q is larger than %d bytes, so that it cannot be kept", string(e.Path), int64(maxFileBytes))
	}
	if w.buffer == nil {
		w.buffer = make([]byte, partBytes)
	}
	for read := int64(0); e.Bytes < size; {
		if read > mostSparse*onDisk+fairSparse {
			return sandbox.Errorf(sandbox.QuotaExceeded, "%.200q has so many holes that it cannot be kept: less than one in %d bytes is on the disk; fill or remove it", string(e.Path), mostSparse)
		}
		if err := w.ctx.Err(); err != nil {
			return sandbox.Wrap(sandbox.Timeout, err, "reading the thread's files took too long")
		}
		if n := holeAt(file, e.Bytes, size); n > 0 {
			e.hole(n)
			continue
		}
		want := min(partBytes, size-e.Bytes)
		n, err := file.ReadAt(w.buffer[:want], e.Bytes)
		if err != nil && !errors.Is(err, io.EOF) {
			return sandbox.Wrap(sandbox.Internal, err, "the thread's files cannot be read")
		}
		if read += int64(n); n == 0 { // it became shorter
			return nil
		}
		if err := w.part(e, w.buffer[:n]); err != nil {
			return err
		}
	}
	return nil
}

// holeAt says how many whole parts from an offset on have no content on the disk.
func holeAt(file *os.File, at, size int64) int64 {
	data, err := unix.Seek(int(file.Fd()), at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return size - at
	}
	if err != nil {
		return 0 // a file system without holes
	}
	return (data - at) / partBytes * partBytes
}

// hole adds zeros.
func (e *entry) hole(n int64) {
	e.Bytes += n
	if last := len(e.Chunks) - 1; last >= 0 && e.Chunks[last].Pack == "" {
		e.Chunks[last].Bytes += n
		return
	}
	e.Chunks = append(e.Chunks, chunk{Bytes: n})
}

var zeros [partBytes]byte

// part adds content.
func (w *writer) part(e *entry, data []byte) error {
	if bytes.Equal(data, zeros[:len(data)]) {
		e.hole(int64(len(data)))
		return nil
	}
	is := sum(sha256.Sum256(data))
	c, ok := w.known[is]
	if !ok {
		w.tried = true
		var err error
		if c, err = w.pack.add(is, data); err != nil {
			return err
		}
		w.known[is] = c
	}
	e.Bytes += int64(len(data))
	e.Chunks = append(e.Chunks, c)
	return nil
}

// describe makes the head of a snapshot, and sends what it refers to.
func (w *writer) describe(found []seen) (*head, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	h := &head{
		Format: format, ID: id.String(), Holder: w.s.o.Holder, Written: time.Now().UTC(),
		Files: len(found), About: w.about, Packs: map[string]int64{},
	}
	if w.base != nil {
		for _, c := range w.base.Head.Tree {
			w.know(c)
		}
	}
	entries := make([]entry, len(found))
	for i := range found {
		entries[i] = found[i].Entry
		h.Bytes += entries[i].Bytes
	}
	texts, err := segments(entries)
	if err != nil {
		return nil, err
	}
	for _, text := range texts {
		is := sum(sha256.Sum256(text))
		c, ok := w.known[is]
		if !ok {
			if c, err = w.pack.add(is, text); err != nil {
				return nil, err
			}
		}
		h.Tree = append(h.Tree, c)
	}
	if err := w.pack.close(); err != nil {
		return nil, err
	}
	w.refer(h, entries)
	_, err = headText(h)
	return h, err
}

// refer notes which packs a snapshot needs.
func (w *writer) refer(h *head, entries []entry) {
	note := func(c chunk) {
		if c.Pack == "" {
			return
		}
		if n, ok := w.pack.packs[c.Pack]; ok {
			h.Packs[c.Pack] = n
		} else {
			h.Packs[c.Pack] = w.base.Head.Packs[c.Pack]
		}
	}
	for _, e := range entries {
		for _, c := range e.Chunks {
			note(c)
		}
	}
	for _, c := range h.Tree {
		note(c)
	}
}

// publish puts the head there, and takes away what no snapshot refers to.
func (w *writer) publish(h *head, found []seen) error {
	former, err := indexes{w.s}.intend(w.t, h.ID)
	if err != nil {
		return err
	}
	version, err := w.s.writeHead(w.ctx, w.t, h, w.version)
	if errors.Is(err, sandbox.Conflict) {
		if version, err = w.moved(h); err != nil { // it is not there, for sure
			if _, e := (indexes{w.s}).intend(w.t, former); e != nil {
				return e
			}
		}
	}
	if err != nil {
		return err
	}
	idx := &index{Version: version, Head: *h, About: sha256.Sum256(w.about), Entries: found}
	if w.base != nil {
		idx.Count, idx.Garbage = w.base.Count+1, w.base.Garbage
		for id := range w.base.Head.Packs {
			if _, used := h.Packs[id]; !used {
				idx.Garbage = append(idx.Garbage, garbage{id, time.Now()})
			}
		}
	}
	w.s.tidy(w.ctx, w.t, idx)
	looks{w.s}.lookedAt(w.t)
	return w.remember(idx)
}

// moved says what it means that the head is not what it was: this very snapshot, when only the answer was lost; one of
// this data folder, whose index is older; or that another server has the thread.
func (w *writer) moved(h *head) (version string, err error) {
	now, version, err := w.s.head(w.ctx, w.t)
	switch {
	case err != nil:
		return "", err
	case now == nil: // the store was emptied
		return "", errAgain
	case now.ID == h.ID && now.Holder == h.Holder:
		return version, nil
	case now.Deleted && w.base == nil, !now.Deleted && now.Holder == w.s.o.Holder:
		return "", errAgain
	}
	return "", errMoved
}
