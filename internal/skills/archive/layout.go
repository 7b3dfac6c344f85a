package archive

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
)

// Programs disagree on what is in a ZIP archive when its parts contradict each other. One reads the
// directory at the end, another walks from the beginning. Entries may share data, or lie in what others take
// for a gap. So the parts have to tile the file: local headers with their data one after the other from byte
// 0, then the directory, then its end record. Every local header says what the directory says. That leaves
// nothing to disagree on, and no byte that belongs to no file.

const (
	sigLocal      = "PK\x03\x04"
	sigDirectory  = "PK\x01\x02"
	sigEnd        = "PK\x05\x06"
	sigDescriptor = "PK\x07\x08"

	lenLocal     = 30
	lenDirectory = 46
	lenEnd       = 22
	maxComment   = 1<<16 - 1
	in64         = 1<<32 - 1 // stands for a value in a field of ZIP64
)

// record is one entry by the directory.
type record struct {
	name             string
	flags, method    uint16
	crc              uint32
	packed, inflated uint32
	offset           uint32
}

func checkLayout(r io.ReaderAt, size int64, l Limits) error {
	at, count, start, err := findEnd(r, size)
	if err != nil {
		return err
	}
	// Folders have entries of their own.
	if count > l.Files*(l.Depth+1) {
		return refuse(TooManyFiles, "", "has more than %d files", l.Files)
	}
	records, err := readDirectory(r, start, at, count)
	if err != nil {
		return err
	}
	slices.SortStableFunc(records, func(a, b record) int { return int(int64(a.offset) - int64(b.offset)) })
	pos := int64(0)
	for i, rec := range records {
		switch {
		case i == 0 && rec.offset > 0:
			return refuse(HiddenData, "", "has %d bytes before its first entry", rec.offset)
		case int64(rec.offset) < pos:
			return refuse(Overlap, rec.name, "shares bytes with another entry")
		case int64(rec.offset) > pos:
			return refuse(HiddenData, rec.name, "has bytes before it that belong to no entry")
		}
		next := start
		if i+1 < len(records) {
			next = int64(records[i+1].offset)
		}
		if pos, err = checkLocal(r, rec, next, start); err != nil {
			return err
		}
	}
	if pos != start {
		return refuse(HiddenData, "", "has bytes before its directory that belong to no entry")
	}
	return nil
}

// findEnd finds the end record, which must be the last thing in the file. It returns its place, how many
// entries the directory has, and where that begins.
func findEnd(r io.ReaderAt, size int64) (at int64, count int, start int64, err error) {
	tail := make([]byte, min(size, lenEnd+maxComment))
	if err := readAt(r, tail, size-int64(len(tail))); err != nil {
		return 0, 0, 0, err
	}
	found := -1
	for i := len(tail) - lenEnd; i >= 0; i-- {
		if !bytes.HasPrefix(tail[i:], []byte(sigEnd)) {
			continue
		}
		if i+lenEnd+int(binary.LittleEndian.Uint16(tail[i+20:])) == len(tail) {
			found = i
			break
		}
		return 0, 0, 0, refuse(HiddenData, "", "has bytes after its end")
	}
	if found < 0 {
		return 0, 0, 0, refuse(BrokenArchive, "", "is not a ZIP archive")
	}
	end := tail[found:]
	at = size - int64(len(end))
	disks := binary.LittleEndian.Uint32(end[4:]) // number of this disk, and of the directory's
	here, all := binary.LittleEndian.Uint16(end[8:]), binary.LittleEndian.Uint16(end[10:])
	length, offset := binary.LittleEndian.Uint32(end[12:]), binary.LittleEndian.Uint32(end[16:])
	switch {
	case all == 0xffff || length == in64 || offset == in64:
		return 0, 0, 0, refuse(Method, "", "is in ZIP64, which a skill is too small for")
	case disks != 0 || here != all:
		return 0, 0, 0, refuse(BrokenArchive, "", "is one part of several")
	case int64(offset)+int64(length) < at:
		return 0, 0, 0, refuse(HiddenData, "", "has bytes before its first entry, or after its directory")
	case int64(offset)+int64(length) != at:
		return 0, 0, 0, refuse(BrokenArchive, "", "its directory is not where its end says")
	}
	return at, int(all), int64(offset), nil
}

func readDirectory(r io.ReaderAt, start, end int64, count int) ([]record, error) {
	raw := make([]byte, end-start)
	if err := readAt(r, raw, start); err != nil {
		return nil, err
	}
	var all []record
	for len(raw) > 0 {
		if len(raw) < lenDirectory || string(raw[:4]) != sigDirectory {
			return nil, refuse(BrokenArchive, "", "its directory is damaged")
		}
		names, extras, comment := int(binary.LittleEndian.Uint16(raw[28:])), int(binary.LittleEndian.Uint16(raw[30:])), int(binary.LittleEndian.Uint16(raw[32:]))
		whole := lenDirectory + names + extras + comment
		if len(raw) < whole {
			return nil, refuse(BrokenArchive, "", "its directory is damaged")
		}
		rec := record{
			name: string(raw[lenDirectory : lenDirectory+names]), flags: binary.LittleEndian.Uint16(raw[8:]), method: binary.LittleEndian.Uint16(raw[10:]),
			crc: binary.LittleEndian.Uint32(raw[16:]), packed: binary.LittleEndian.Uint32(raw[20:]), inflated: binary.LittleEndian.Uint32(raw[24:]),
			offset: binary.LittleEndian.Uint32(raw[42:]),
		}
		if rec.packed == in64 || rec.inflated == in64 || rec.offset == in64 {
			return nil, refuse(TooManyBytes, rec.name, "has a size that only ZIP64 can hold")
		}
		all = append(all, rec)
		raw = raw[whole:]
	}
	if len(all) != count {
		return nil, refuse(HeaderMismatch, "", "its directory has %d entries, but its end says %d", len(all), count)
	}
	return all, nil
}

// checkLocal compares the header before an entry's data with the directory, and returns where the entry
// ends. next is where the next thing begins, limit where the directory does.
func checkLocal(r io.ReaderAt, rec record, next, limit int64) (int64, error) {
	var fixed [lenLocal]byte
	at := int64(rec.offset)
	if err := readAt(r, fixed[:], at); err != nil || string(fixed[:4]) != sigLocal {
		return 0, refuse(BrokenArchive, rec.name, "is not where the directory says")
	}
	names, extras := int(binary.LittleEndian.Uint16(fixed[26:])), int(binary.LittleEndian.Uint16(fixed[28:]))
	rest := make([]byte, names+extras)
	if err := readAt(r, rest, at+lenLocal); err != nil {
		return 0, err
	}
	data := at + lenLocal + int64(len(rest))
	flags, method := binary.LittleEndian.Uint16(fixed[6:]), binary.LittleEndian.Uint16(fixed[8:])
	switch {
	case string(rest[:names]) != rec.name:
		return 0, refuse(HeaderMismatch, rec.name, "has another name in the header before its data")
	case flags != rec.flags || method != rec.method:
		return 0, refuse(HeaderMismatch, rec.name, "has other flags or another method in the header before its data")
	}
	if second, ok := extra(rest[names:], extraUnicodePath); ok && (len(second) < 5 || string(second[5:]) != rec.name) {
		return 0, refuse(HeaderMismatch, rec.name, "has a second name that differs")
	}
	if !sameSizes(fixed[:], rest[names:], rec) {
		return 0, refuse(HeaderMismatch, rec.name, "has other sizes or another checksum in the header before its data")
	}
	end := data + int64(rec.packed)
	switch {
	case end > limit || end > next:
		return 0, refuse(Overlap, rec.name, "shares bytes with another entry or the directory")
	case rec.flags&flagDescriptor != 0:
		return checkDescriptor(r, rec, end, next)
	}
	return end, nil
}

// sameSizes compares checksum and sizes. With a descriptor they may be zero before the data.
func sameSizes(fixed, extras []byte, rec record) bool {
	crc := binary.LittleEndian.Uint32(fixed[14:])
	packed, inflated := uint64(binary.LittleEndian.Uint32(fixed[18:])), uint64(binary.LittleEndian.Uint32(fixed[22:]))
	if big, ok := extra(extras, 1); ok && len(big) >= 16 && packed == in64 && inflated == in64 { // a writer that did not know how much would come
		inflated, packed = binary.LittleEndian.Uint64(big), binary.LittleEndian.Uint64(big[8:])
	}
	later := rec.flags&flagDescriptor != 0
	same := func(got, want uint64) bool { return got == want || later && (got == 0 || got == in64) }
	return same(uint64(crc), uint64(rec.crc)) && same(packed, uint64(rec.packed)) && same(inflated, uint64(rec.inflated))
}

// checkDescriptor reads what follows the data: checksum and two sizes of 4 or 8 bytes each, with or without
// a signature. Its length is what is left before the next thing.
func checkDescriptor(r io.ReaderAt, rec record, at, next int64) (int64, error) {
	n := next - at
	if n != 12 && n != 16 && n != 20 && n != 24 {
		return 0, refuse(HiddenData, rec.name, "has bytes after it that belong to no entry")
	}
	raw := make([]byte, n)
	if err := readAt(r, raw, at); err != nil {
		return 0, err
	}
	if n == 16 || n == 24 {
		if string(raw[:4]) != sigDescriptor {
			return 0, refuse(HiddenData, rec.name, "has bytes after it that belong to no entry")
		}
		raw = raw[4:]
	}
	packed, inflated := uint64(binary.LittleEndian.Uint32(raw[4:])), uint64(binary.LittleEndian.Uint32(raw[len(raw)-4:]))
	if len(raw) == 20 {
		packed, inflated = binary.LittleEndian.Uint64(raw[4:]), binary.LittleEndian.Uint64(raw[12:])
	}
	if binary.LittleEndian.Uint32(raw) != rec.crc || packed != uint64(rec.packed) || inflated != uint64(rec.inflated) {
		return 0, refuse(HeaderMismatch, rec.name, "has other sizes or another checksum after its data")
	}
	return next, nil
}

func readAt(r io.ReaderAt, p []byte, at int64) error {
	if n, err := r.ReadAt(p, at); n < len(p) {
		if errors.Is(err, io.EOF) || err == nil {
			return refuse(BrokenArchive, "", "ends too early")
		}
		return err
	}
	return nil
}
