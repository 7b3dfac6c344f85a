package archive

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"strings"
)

// Bits of the flags of an entry.
const (
	flagEncrypted  = 1 << 0
	flagDescriptor = 1 << 3 // sizes and checksum follow the data
	flagStrong     = 1 << 6
	flagMasked     = 1 << 13
	methodAES      = 99
)

// File types and bits of a Unix mode.
const (
	typeMask   = 0o170000
	typeFolder = 0o040000
	typeFile   = 0o100000
	typeLink   = 0o120000
	setIDs     = 0o6000

	attrReparse = 0x400 // of Windows: a link or a mount point
)

// checkHeader refuses what an entry is, by its header in the directory.
func checkHeader(f *zip.File, l Limits) error {
	dir := strings.HasSuffix(f.Name, "/")
	// Some programs take the Unix mode for true whatever system the entry claims to be from.
	mode := f.ExternalAttrs >> 16
	kind := mode & typeMask
	switch {
	case f.Flags&(flagEncrypted|flagStrong|flagMasked) != 0 || f.Method == methodAES:
		return refuse(Encrypted, f.Name, "is encrypted")
	case f.Method != zip.Store && f.Method != zip.Deflate:
		return refuse(Method, f.Name, "is compressed by method %d; use deflate", f.Method)
	case kind == typeLink || kind == 0 && f.ExternalAttrs&attrReparse != 0:
		return refuse(Link, f.Name, "is a symbolic link; put the file itself in its place")
	case kind != 0 && kind != typeFile && kind != typeFolder:
		return refuse(SpecialFile, f.Name, "is a device, pipe or socket")
	case kind == typeFolder && !dir || kind == typeFile && dir:
		return refuse(HeaderMismatch, f.Name, "its name and its mode disagree on whether it is a folder")
	case mode&setIDs != 0 && !dir:
		return refuse(SetUID, f.Name, "has a setuid or setgid bit")
	case dir && (f.UncompressedSize64 != 0 || f.CompressedSize64 > 2): // an empty deflate stream has two bytes
		return refuse(HeaderMismatch, f.Name, "is a folder with data")
	case f.Method == zip.Store && f.CompressedSize64 != f.UncompressedSize64:
		return refuse(HeaderMismatch, f.Name, "is stored, but its two sizes differ")
	case f.UncompressedSize64 > uint64(l.Bytes):
		if tooDense(f.UncompressedSize64, f.CompressedSize64, l) {
			return refuse(Bomb, f.Name, "inflates to more than %d times its size", l.Ratio)
		}
		return refuse(TooManyBytes, f.Name, "holds more than %d bytes", l.Bytes)
	case tooDense(f.UncompressedSize64, f.CompressedSize64, l):
		return refuse(Bomb, f.Name, "inflates to more than %d times its size", l.Ratio)
	}
	return checkUnicodePath(f)
}

// extraUnicodePath is the second name that an entry may have for programs that know of it (Info-ZIP).
const extraUnicodePath = 0x7075

func checkUnicodePath(f *zip.File) error {
	if second, ok := extra(f.Extra, extraUnicodePath); ok && (len(second) < 5 || string(second[5:]) != f.Name) {
		return refuse(HeaderMismatch, f.Name, "has a second name that differs")
	}
	return nil
}

// extra finds a field among the extra ones of a header.
func extra(fields []byte, id uint16) ([]byte, bool) {
	for len(fields) >= 4 {
		n := int(binary.LittleEndian.Uint16(fields[2:]))
		if len(fields) < 4+n {
			return nil, false
		}
		if binary.LittleEndian.Uint16(fields) == id {
			return fields[4 : 4+n], true
		}
		fields = fields[4+n:]
	}
	return nil, false
}

// machineCode names the format of a program by its first bytes, "" when it is none.
func machineCode(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte("\x7fELF")):
		return "ELF"
	case windowsProgram(head):
		return "PE"
	}
	if len(head) < 8 {
		return ""
	}
	switch binary.BigEndian.Uint32(head) {
	case 0xfeedface, 0xfeedfacf, 0xcefaedfe, 0xcffaedfe:
		return "Mach-O"
	case 0xcafebabe, 0xbebafeca, 0xcafebabf, 0xbfbafeca:
		return "Mach-O or Java class"
	}
	return ""
}

// windowsProgram tells the header of DOS, which begins each program of Windows, from a text that begins
// with MZ: the header has 64 bytes, with zeroes among them.
func windowsProgram(head []byte) bool {
	if len(head) < 64 || head[0] != 'M' || head[1] != 'Z' {
		return false
	}
	at := int64(binary.LittleEndian.Uint32(head[0x3c:]))
	return at+4 <= int64(len(head)) && bytes.Equal(head[at:at+4], []byte("PE\x00\x00")) || bytes.IndexByte(head[:64], 0) >= 0
}
