package wire

import (
	"fmt"

	"github.com/skerry-sandbox/skerry/internal/sidecar/tree"
)

// FromTree makes a message of an entry; nil of what is gone.
func FromTree(mount int, path string, e *tree.Entry) *Entry {
	m := &Entry{Mount: uint32(mount), Path: []byte(path)}
	if e == nil {
		return m
	}
	m.Kind, m.Mode, m.Size, m.Mtime = uint32(e.Kind), e.Mode, e.Size, e.Mtime
	if e.Kind == tree.Link {
		m.Link = []byte(e.Target)
	}
	if e.Digest.Known() {
		m.Digest = e.Digest[:]
	}
	return m
}

// Tree returns the entry of a message; gone when there is nothing at its path any more. What is wrong with it is an error.
func (m *Entry) Tree() (e tree.Entry, gone bool, err error) {
	if m.GetKind() == 0 {
		return tree.Entry{Path: string(m.GetPath())}, true, tree.CheckPath(string(m.GetPath()))
	}
	if m.GetKind() > uint32(tree.Link) {
		return e, false, fmt.Errorf("%.200q: kind %d", m.GetPath(), m.GetKind())
	}
	e = tree.Entry{
		Path: string(m.GetPath()), Kind: tree.Kind(m.GetKind()), Mode: m.GetMode(), Size: m.GetSize(), Mtime: m.GetMtime(), Target: string(m.GetLink()),
	}
	switch len(m.GetDigest()) {
	case 0:
	case len(e.Digest):
		e.Digest = tree.Digest(m.GetDigest())
	default:
		return e, false, fmt.Errorf("%.200q: a digest of %d bytes, want %d", e.Path, len(m.GetDigest()), len(e.Digest))
	}
	return e, false, e.Check()
}

// maxBatchBytes keeps a batch of long paths below MaxMessage.
const maxBatchBytes = 512 << 10

// SendEntries sends a list in batches. next returns one after the other, and nil at the end.
func SendEntries(s *Stream, full bool, next func() *Entry) error {
	batch := &Entries{Full: full}
	size := 0
	for {
		e := next()
		if e == nil {
			batch.Last = true
			return s.Send(batch)
		}
		batch.Entries = append(batch.Entries, e)
		size += len(e.GetPath()) + len(e.GetLink()) + 64
		if len(batch.Entries) < MaxBatch && size < maxBatchBytes {
			continue
		}
		if err := s.Send(batch); err != nil {
			return err
		}
		batch, size = &Entries{Full: full}, 0
	}
}

// ReceiveEntries calls each for every entry of all batches. full is what the first batch says.
func ReceiveEntries(s *Stream, each func(m *Entry) error) (full bool, err error) {
	for first := true; ; first = false {
		var batch Entries
		if err := s.Await(&batch); err != nil {
			return full, err
		}
		if err := batch.GetFailure().Err(); err != nil {
			return full, err
		}
		if len(batch.GetEntries()) > MaxBatch || len(batch.GetEntries()) == 0 && !batch.GetLast() {
			return full, fmt.Errorf("a batch of %d entries, want 1 to %d", len(batch.GetEntries()), MaxBatch)
		}
		if first {
			full = batch.GetFull()
		}
		for _, m := range batch.GetEntries() {
			if err := each(m); err != nil {
				return full, err
			}
		}
		if batch.GetLast() {
			return full, nil
		}
	}
}

// SendWanted sends numbers of entries, in ascending order.
func SendWanted(s *Stream, numbers []int) error {
	for {
		n := min(len(numbers), MaxBatch)
		batch := &Wanted{Last: n == len(numbers)}
		for _, i := range numbers[:n] {
			batch.Numbers = append(batch.Numbers, uint32(i))
		}
		if err := s.Send(batch); err != nil {
			return err
		}
		if numbers = numbers[n:]; batch.GetLast() {
			return nil
		}
	}
}

// ReceiveWanted receives numbers of entries, which are ascending and below limit.
func ReceiveWanted(s *Stream, limit int) ([]int, error) {
	var numbers []int
	last := -1
	for {
		var batch Wanted
		if err := s.Await(&batch); err != nil {
			return nil, err
		}
		if err := batch.GetFailure().Err(); err != nil {
			return nil, err
		}
		if len(batch.GetNumbers()) > MaxBatch || len(batch.GetNumbers()) == 0 && !batch.GetLast() {
			return nil, fmt.Errorf("a batch of %d numbers, want 1 to %d", len(batch.GetNumbers()), MaxBatch)
		}
		for _, n := range batch.GetNumbers() {
			if int64(n) <= int64(last) || int64(n) >= int64(limit) {
				return nil, fmt.Errorf("number %d behind %d, of %d", n, last, limit)
			}
			last = int(n)
			numbers = append(numbers, last)
		}
		if batch.GetLast() {
			return numbers, nil
		}
	}
}
