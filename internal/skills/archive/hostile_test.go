package archive

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

var good = item{name: "SKILL.md", text: skillText}

func named(name string) func(testing.TB) []byte {
	return func(t testing.TB) []byte { return build(t, good, item{name: name, text: "x"}) }
}

func mode(m fs.FileMode) func(testing.TB) []byte {
	return func(t testing.TB) []byte { return build(t, good, item{name: "x", text: "/etc/passwd", mode: m}) }
}

func holding(text string) func(testing.TB) []byte {
	return func(t testing.TB) []byte { return build(t, good, item{name: "x", text: text}) }
}

func both(a, b string) func(testing.TB) []byte {
	return func(t testing.TB) []byte {
		return build(t, good, item{name: a, text: "1"}, item{name: b, text: "2"})
	}
}

func edited(edit func(*zip.FileHeader)) func(testing.TB) []byte {
	return func(t testing.TB) []byte { return build(t, good, item{name: "x", text: "text", edit: edit}) }
}

// patched changes the bytes of a good archive of two entries, SKILL.md and x.
func patched(change func(data []byte) []byte) func(testing.TB) []byte {
	return func(t testing.TB) []byte { return change(build(t, good, item{name: "x", text: "some text"})) }
}

// header returns the n-th header with a signature.
func header(data []byte, sig string, n int) []byte {
	at := -1
	for range n + 1 {
		at += 1 + bytes.Index(data[at+1:], []byte(sig))
	}
	return data[at:]
}

func put16(b []byte, v uint16) { binary.LittleEndian.PutUint16(b, v) }
func put32(b []byte, v uint32) { binary.LittleEndian.PutUint32(b, v) }

// hostile are the known attacks on programs that unpack archives, each with the reason it is refused for.
var hostile = map[string]struct {
	make func(testing.TB) []byte
	want Reason
}{
	"zip slip":                  {named("../../../../etc/cron.d/x"), ParentPath},
	"zip slip in the middle":    {named("a/../../x"), ParentPath},
	"zip slip of Windows":       {named(`..\..\x`), Backslash},
	"mixed slashes":             {named(`a/..\x`), Backslash},
	"absolute":                  {named("/etc/passwd"), AbsolutePath},
	"drive":                     {named("C:/Windows/x"), AbsolutePath},
	"drive relative":            {named("c:x"), AbsolutePath},
	"UNC":                       {named("//host/share/x"), AbsolutePath},
	"UNC of Windows":            {named(`\\host\share\x`), Backslash},
	"empty part":                {named("a//b"), PathForm},
	"dot":                       {named("./x"), PathForm},
	"stream":                    {named("SKILL.md:evil.exe"), NTFSStream},
	"stream of a folder":        {named("ab::$INDEX_ALLOCATION/x"), NTFSStream},
	"device of Windows":         {named("scripts/NUL"), WindowsName},
	"device with an ending":     {named("com1.txt"), WindowsName},
	"device with a superscript": {named("LPT².md"), WindowsName},
	"device with a blank":       {named("aux .txt"), WindowsName},
	"console":                   {named("CONIN$"), WindowsName},
	"dot at the end":            {named("SKILL.md."), WindowsName},
	"blank at the end":          {named("a /x"), WindowsName},
	"wildcard":                  {named("a*"), WindowsName},
	"NUL byte":                  {named("x.py\x00.txt"), NameCharacters},
	"line end":                  {named("a\nb"), NameCharacters},
	"right to left":             {named("a\u202Egpj.exe"), NameCharacters},
	"zero width":                {named("SKI\u200bLL.md"), NameCharacters},
	"not UTF-8":                 {named("a\xff"), NameCharacters},
	"long name":                 {named(strings.Repeat("a", 256)), NameLength},
	"long path":                 {named(strings.Repeat("abcdefg/", 65)), NameLength},
	"deep":                      {named("1/2/3/4/5/6/7/8/x"), TooDeep},
	"very deep":                 {named(strings.Repeat("d/", 200) + "x"), TooDeep},
	"symbolic link":             {mode(fs.ModeSymlink | 0o777), Link},
	"link, then a file behind it": {func(t testing.TB) []byte {
		return build(t, good, item{name: "a", text: "/etc", mode: fs.ModeSymlink | 0o777}, item{name: "a/passwd", text: "x"})
	}, Link},
	"link of a FAT archive": {edited(func(h *zip.FileHeader) { h.CreatorVersion, h.ExternalAttrs = 0, 0o120777<<16 }), Link},
	"reparse point":         {edited(func(h *zip.FileHeader) { h.CreatorVersion, h.ExternalAttrs = 10<<8, 0x400 }), Link},
	"pipe":                  {mode(fs.ModeNamedPipe | 0o666), SpecialFile},
	"device":                {mode(fs.ModeDevice | fs.ModeCharDevice | 0o666), SpecialFile},
	"block device":          {mode(fs.ModeDevice | 0o666), SpecialFile},
	"socket":                {mode(fs.ModeSocket | 0o666), SpecialFile},
	"setuid":                {mode(fs.ModeSetuid | 0o755), SetUID},
	"setgid":                {mode(fs.ModeSetgid | 0o755), SetUID},
	"ELF":                   {holding("\x7fELF\x02\x01\x01\x00more"), Executable},
	"PE":                    {holding("MZ" + strings.Repeat("\x00", 58) + "\x40\x00\x00\x00PE\x00\x00"), Executable},
	"Mach-O":                {holding("\xcf\xfa\xed\xfe\x07\x00\x00\x01more"), Executable},
	"fat Mach-O":            {holding("\xca\xfe\xba\xbe\x00\x00\x00\x02more"), Executable},
	"case":                  {both("scripts/Run.py", "scripts/run.py"), CaseCollision},
	"case of a folder":      {both("Scripts/a", "scripts/b"), CaseCollision},
	"case of the manifest":  {named("skill.md"), CaseCollision},
	"case beyond ASCII":     {both("straße", "STRASSE"), CaseCollision},
	"Unicode forms":         {both("caf\u00e9", "cafe\u0301"), UnicodeCollision},
	"Kelvin sign":           {both("\u212a", "k"), CaseCollision},
	"ligature":              {both("\ufb01le", "file"), CaseCollision},
	"full width":            {both("\uff41.py", "a.py"), UnicodeCollision},
	"twice":                 {both("x", "x"), Duplicate},
	"folder twice":          {both("x/", "x/"), Duplicate},
	"file, then folder":     {both("a", "a/b"), FileAsFolder},
	"folder, then file":     {both("a/b", "a"), FileAsFolder},
	"file and folder entry": {both("a/", "a"), FileAsFolder},
	"too many files": {func(t testing.TB) []byte {
		items := []item{good}
		for i := range 512 {
			items = append(items, item{name: fmt.Sprint("f", i)})
		}
		return build(t, items...)
	}, TooManyFiles},
	"far too many entries": {func(t testing.TB) []byte {
		items := []item{good}
		for i := range 20_000 {
			items = append(items, item{name: fmt.Sprintf("f%d/", i)})
		}
		return build(t, items...)
	}, TooManyFiles},
	"too many bytes": {func(t testing.TB) []byte {
		part := strings.Repeat("0123456789abcdefghijklmnopqrstuvwxyz", 1<<18) // 9 MiB
		store := func(h *zip.FileHeader) { h.Method = zip.Store }
		return build(t, good, item{name: "a", text: part, edit: store}, item{name: "b", text: part, edit: store})
	}, TooManyBytes},
	"bomb":              {holding(strings.Repeat("\x00", 3<<20)), Bomb},
	"bomb of many":      {func(t testing.TB) []byte { return build(t, append(zeroes(3), good)...) }, Bomb},
	"bomb of Fifield":   {fifield, Overlap},
	"the same data":     {sameData, Overlap},
	"size understated":  {patched(lie), HeaderMismatch},
	"stored, two sizes": {twoSizes, HeaderMismatch},
	"encrypted": {patched(func(d []byte) []byte {
		header(d, sigLocal, 1)[6] |= 1
		header(d, sigDirectory, 1)[8] |= 1
		return d
	}), Encrypted},
	"AES": {patched(func(d []byte) []byte {
		put16(header(d, sigLocal, 1)[8:], 99)
		put16(header(d, sigDirectory, 1)[10:], 99)
		return d
	}), Encrypted},
	"LZMA": {patched(func(d []byte) []byte {
		put16(header(d, sigLocal, 1)[8:], 14)
		put16(header(d, sigDirectory, 1)[10:], 14)
		return d
	}), Method},
	"two names":        {patched(func(d []byte) []byte { header(d, sigLocal, 1)[lenLocal] = 'y'; return d }), HeaderMismatch},
	"two methods":      {patched(func(d []byte) []byte { put16(header(d, sigLocal, 1)[8:], 0); return d }), HeaderMismatch},
	"two sizes":        {patched(func(d []byte) []byte { put32(header(d, sigDirectory, 1)[24:], 1000); return d }), HeaderMismatch},
	"two checksums":    {patched(func(d []byte) []byte { header(d, sigDirectory, 1)[16]++; return d }), HeaderMismatch},
	"wrong checksum":   {patched(badChecksum), BrokenArchive},
	"Unicode path":     {edited(func(h *zip.FileHeader) { h.Extra = unicodePath("../../evil") }), HeaderMismatch},
	"folder as file":   {edited(func(h *zip.FileHeader) { h.CreatorVersion, h.ExternalAttrs = 3<<8, 0o040755<<16 }), HeaderMismatch},
	"prefix":           {patched(func(d []byte) []byte { return append([]byte("#!/bin/sh\nevil\n"), d...) }), HiddenData},
	"appended":         {patched(func(d []byte) []byte { return append(d, "evil"...) }), HiddenData},
	"two archives":     {func(t testing.TB) []byte { return append(build(t, good), build(t, good, item{name: "y"})...) }, HiddenData},
	"gap":              {patched(gap), HiddenData},
	"hidden entry":     {patched(hide), HiddenData},
	"fewer entries":    {patched(func(d []byte) []byte { end := header(d, sigEnd, 0); put16(end[8:], 1); put16(end[10:], 1); return d }), HeaderMismatch},
	"several disks":    {patched(func(d []byte) []byte { put16(header(d, sigEnd, 0)[4:], 1); return d }), BrokenArchive},
	"ZIP64":            {patched(func(d []byte) []byte { put16(header(d, sigEnd, 0)[10:], 0xffff); return d }), Method},
	"wild offset":      {patched(func(d []byte) []byte { put32(header(d, sigDirectory, 1)[42:], 1<<31); return d }), HiddenData},
	"wild directory":   {patched(func(d []byte) []byte { put32(header(d, sigEnd, 0)[16:], 1<<31); return d }), BrokenArchive},
	"cut off":          {patched(func(d []byte) []byte { return d[:len(d)-30] }), BrokenArchive},
	"nothing":          {func(testing.TB) []byte { return nil }, BrokenArchive},
	"a text":           {func(testing.TB) []byte { return []byte(strings.Repeat("no archive ", 100)) }, BrokenArchive},
	"an empty archive": {func(t testing.TB) []byte { return build(t) }, NoSkill},
	"no manifest":      {func(t testing.TB) []byte { return build(t, item{name: "a/README.md"}) }, NoSkill},
	"two skills": {func(t testing.TB) []byte {
		return build(t, item{name: "a/SKILL.md", text: skillText}, item{name: "b/SKILL.md", text: skillText})
	}, NoSkill},
	"manifest too deep": {func(t testing.TB) []byte { return build(t, item{name: "a/b/SKILL.md", text: skillText}) }, NoSkill},
	"archive too large": {func(t testing.TB) []byte {
		return build(t, good, item{name: "a", text: strings.Repeat("x", 25<<20), edit: func(h *zip.FileHeader) { h.Method = zip.Store }})
	}, TooManyBytes},
}

// TestHostile: each attack is refused by its name, and leaves nothing inside or outside of the folder.
func TestHostile(t *testing.T) {
	for name, c := range hostile {
		t.Run(name, func(t *testing.T) {
			data := c.make(t)
			above := t.TempDir()
			parent := filepath.Join(above, "stage")
			if err := os.Mkdir(parent, 0o755); err != nil {
				t.Fatal(err)
			}
			_, err := Unpack(t.Context(), bytes.NewReader(data), int64(len(data)), parent, DefaultLimits())
			if RefusedFor(err) != c.want || !errors.Is(err, sandbox.Invalid) {
				t.Errorf("want %s, got %v", c.want, err)
			}
			if err != nil && strings.Contains(err.Error(), above) {
				t.Errorf("the error shows a host path: %v", err)
			}
			empty(t, parent)
			if left, _ := os.ReadDir(above); len(left) != 1 {
				t.Errorf("outside: %v", left)
			}
		})
	}
}

func zeroes(n int) []item {
	var all []item
	for i := range n {
		all = append(all, item{name: fmt.Sprint("z", i), text: strings.Repeat("\x00", 1<<20)})
	}
	return all
}

// fifield lets the data of each entry be what follows it, headers and all, up to one kernel: the first
// entry stores (quotes) the second's header and data.
func fifield(testing.TB) []byte {
	kernel := []byte(skillText)
	second := local("b", kernel)
	first := local("a", second)
	var d []byte
	d = append(d, first...)
	at := uint32(len(d))
	d = append(d, central("a", second, 0)...)
	d = append(d, central("b", kernel, uint32(len(first)-len(second)))...)
	return append(d, ending(2, uint32(len(d))-at, at)...)
}

// sameData has two entries with one header and one piece of data.
func sameData(testing.TB) []byte {
	d := local("SKILL.md", []byte(skillText))
	at := uint32(len(d))
	d = append(d, central("SKILL.md", []byte(skillText), 0)...)
	d = append(d, central("SKILL.md", []byte(skillText), 0)...)
	return append(d, ending(2, uint32(len(d))-at, at)...)
}

// twoSizes is stored, and says that it grows.
func twoSizes(testing.TB) []byte {
	d, dir := local("SKILL.md", []byte(skillText)), central("SKILL.md", []byte(skillText), 0)
	put32(d[22:], 4000)
	put32(dir[24:], 4000)
	at := uint32(len(d))
	return append(append(d, dir...), ending(1, uint32(len(dir)), at)...)
}

func local(name string, data []byte) []byte {
	h := make([]byte, lenLocal)
	copy(h, sigLocal)
	put16(h[4:], 20)
	put32(h[14:], crc32.ChecksumIEEE(data))
	put32(h[18:], uint32(len(data)))
	put32(h[22:], uint32(len(data)))
	put16(h[26:], uint16(len(name)))
	return append(append(h, name...), data...)
}

func central(name string, data []byte, offset uint32) []byte {
	h := make([]byte, lenDirectory)
	copy(h, sigDirectory)
	put16(h[6:], 20)
	put32(h[16:], crc32.ChecksumIEEE(data))
	put32(h[20:], uint32(len(data)))
	put32(h[24:], uint32(len(data)))
	put16(h[28:], uint16(len(name)))
	put32(h[42:], offset)
	return append(h, name...)
}

func ending(n uint16, length, offset uint32) []byte {
	h := make([]byte, lenEnd)
	copy(h, sigEnd)
	put16(h[8:], n)
	put16(h[10:], n)
	put32(h[12:], length)
	put32(h[16:], offset)
	return h
}

// lie says everywhere that x holds one byte.
func lie(d []byte) []byte {
	put32(header(d, sigDirectory, 1)[24:], 1)
	put32(header(d, sigDescriptor, 1)[12:], 1)
	return d
}

func badChecksum(d []byte) []byte {
	header(d, sigDirectory, 1)[16] ^= 1
	header(d, sigDescriptor, 1)[4] ^= 1
	return d
}

func unicodePath(name string) []byte {
	field := make([]byte, 9)
	put16(field, extraUnicodePath)
	put16(field[2:], uint16(5+len(name)))
	field[4] = 1
	return append(field, name...)
}

// gap puts bytes between the first entry and the second.
func gap(d []byte) []byte {
	second := len(d) - len(header(d, sigLocal, 1))
	d = append(append(bytes.Clone(d[:second]), "0123456789012345678901234567890"...), d[second:]...)
	return shifted(d, 31)
}

func shifted(d []byte, by uint32) []byte {
	at := header(d, sigDirectory, 1)[42:]
	put32(at, binary.LittleEndian.Uint32(at)+by)
	end := header(d, sigEnd, 0)[16:]
	put32(end, binary.LittleEndian.Uint32(end)+by)
	return d
}

// hide takes the second entry out of the directory and leaves its data.
func hide(d []byte) []byte {
	second := len(d) - len(header(d, sigDirectory, 1))
	end := bytes.Clone(header(d, sigEnd, 0))
	start := binary.LittleEndian.Uint32(end[16:])
	return append(bytes.Clone(d[:second]), ending(1, uint32(second)-start, start)...)
}

// FuzzUnpack: whatever comes in, nothing is written outside. Accepted archives keep the limits, pack again
// and unpack to the same. Refused archives leave nothing.
func FuzzUnpack(f *testing.F) {
	for _, c := range hostile {
		if data := c.make(f); len(data) < 64<<10 {
			f.Add(data)
		}
	}
	f.Add(build(f, good, item{name: "scripts/run.py", text: "print(1)"}))
	l := Limits{ArchiveBytes: 1 << 20, Files: 20, Bytes: 1 << 20, Ratio: 100, Depth: 4, NameBytes: 60, PathBytes: 200}
	f.Fuzz(func(t *testing.T, data []byte) {
		above := t.TempDir()
		parent := filepath.Join(above, "stage")
		if err := os.Mkdir(parent, 0o755); err != nil {
			t.Fatal(err)
		}
		s, err := Unpack(t.Context(), bytes.NewReader(data), int64(len(data)), parent, l)
		if left, _ := os.ReadDir(above); len(left) != 1 {
			t.Fatalf("outside: %v", left)
		}
		if err != nil {
			if RefusedFor(err) == "" {
				t.Errorf("no reason: %v", err)
			}
			empty(t, parent)
			return
		}
		files, total := 0, int64(0)
		err = filepath.WalkDir(s.Dir, func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			info, err := d.Info()
			if err == nil && (!info.Mode().IsRegular() || info.Mode().Perm()&^0o755 != 0) {
				t.Errorf("%s: %s", p, info.Mode())
			}
			files, total = files+1, total+info.Size()
			return err
		})
		if err != nil || files != s.Files || total != s.Bytes || files > l.Files || total > l.Bytes {
			t.Errorf("%d files, %d bytes: %+v, %v", files, total, s, err)
		}
		var again bytes.Buffer
		if err := Pack(t.Context(), &again, s.Dir, "skill", l); err != nil {
			t.Fatalf("what was let in cannot be packed: %v", err)
		}
		if _, err := Unpack(t.Context(), bytes.NewReader(again.Bytes()), int64(again.Len()), parent, l); err != nil {
			t.Errorf("what was packed is refused: %v", err)
		}
	})
}
