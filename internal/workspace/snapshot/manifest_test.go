package snapshot

import (
	"strings"
	"testing"
)

// TestNoPathLeads: an entry that would be written anywhere but into a folder of the thread's is refused.
func TestNoPathLeads(t *testing.T) {
	t.Parallel()
	const folder = `{"path":"workspace","kind":"d","mode":448}` + "\n"
	for what, line := range map[string]string{
		"up":                    `{"path":"workspace/../../x","kind":"f"}`,
		"absolute":              `{"path":"/etc/passwd","kind":"f"}`,
		"another top":           `{"path":"code-api","kind":"d"}`,
		"the top itself":        `{"path":"","kind":"d"}`,
		"a file as a top":       `{"path":"outputs","kind":"f"}`,
		"no folder":             `{"path":"workspace/a/b","kind":"f"}`,
		"empty part":            `{"path":"workspace//b","kind":"f"}`,
		"NUL":                   `{"path":"workspace/\u0000","kind":"f"}`,
		"NUL in hex":            `{"path":"\u0000776f726b73706163652f00","kind":"f"}`,
		"twice":                 `{"path":"workspace","kind":"d"}`,
		"kind":                  `{"path":"workspace/x","kind":"c"}`,
		"set-uid":               `{"path":"workspace/x","kind":"f","mode":2541}`,
		"link to nothing":       `{"path":"workspace/x","kind":"l"}`,
		"name of nothing":       `{"path":"workspace/x","kind":"h","to":"workspace/y"}`,
		"name of a folder":      `{"path":"workspace/x","kind":"h","to":"workspace"}`,
		"content of a folder":   `{"path":"workspace/x","kind":"d","bytes":1}`,
		"bytes without content": `{"path":"workspace/x","kind":"f","bytes":1}`,
		"content without bytes": `{"path":"workspace/x","kind":"f","chunks":[{"n":1}]}`,
		"negative":              `{"path":"workspace/x","kind":"f","bytes":-1,"chunks":[{"n":-1}]}`,
		"no such pack":          `{"path":"workspace/x","kind":"f","bytes":1,"chunks":[{"n":1,"pack":"p"}]}`,
		"beyond its pack":       `{"path":"workspace/x","kind":"f","bytes":2,"chunks":[{"n":2,"at":9,"pack":"00000000-0000-0000-0000-000000000000"}]}`,
		"beyond all numbers":    `{"path":"workspace/x","kind":"f","bytes":2,"chunks":[{"n":2,"at":9223372036854775807,"pack":"00000000-0000-0000-0000-000000000000"}]}`,
		"too deep":              `{"path":"workspace` + strings.Repeat("/d", maxDepth) + `","kind":"d"}`,
	} {
		r := newReader(map[string]int64{"00000000-0000-0000-0000-000000000000": 10})
		if err := r.read([]byte(folder + line + "\n")); err == nil {
			t.Errorf("%s: taken: %+v", what, r.entries)
		}
	}
	link := folder + `{"path":"workspace/l","kind":"l","to":"/etc"}` + "\n" + `{"path":"workspace/l/passwd","kind":"f"}` + "\n"
	if err := newReader(nil).read([]byte(link)); err == nil {
		t.Error("a file below a link was taken")
	}
}

// FuzzManifest: whatever a list of files says, what is taken of it lies in the thread's folders, and is written and read
// as it is.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"path":"workspace","kind":"d","mode":448}` + "\n" + `{"path":"workspace/a","kind":"f","bytes":5,"chunks":[{"n":3},{"sum":"` + strings.Repeat("0", 64) + `","pack":"p","n":2}]}`))
	f.Add([]byte(`{"path":"workspace","kind":"d"}` + "\n" + `{"path":"\u0000776f726b73706163652fff","kind":"l","to":"x"}`))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := newReader(map[string]int64{"p": 10})
		if r.read(text) != nil {
			return
		}
		for _, e := range r.entries {
			if err := checkPath(string(e.Path)); err != nil {
				t.Fatalf("%q was taken", e.Path)
			}
		}
		texts, err := segments(r.entries)
		if err != nil {
			t.Fatal(err)
		}
		again := newReader(map[string]int64{"p": 10})
		for _, s := range texts {
			if err := again.read(s); err != nil {
				t.Fatalf("%s is not read again: %v", s, err)
			}
		}
		if len(again.entries) != len(r.entries) || again.bytes != r.bytes {
			t.Fatal("it is another list")
		}
		for i := range r.entries {
			if !alike(seen{Entry: r.entries[i]}, seen{Entry: again.entries[i]}) {
				t.Fatalf("%+v became %+v", r.entries[i], again.entries[i])
			}
		}
	})
}

// FuzzHead: what is no head is an error and nothing else.
func FuzzHead(f *testing.F) {
	f.Add([]byte(`{"format":1,"id":"x","holder":"h","files":1,"bytes":2,"tree":[{"pack":"00000000-0000-0000-0000-000000000000","n":1}],"packs":{"00000000-0000-0000-0000-000000000000":10}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := readHead(text)
		if err != nil {
			return
		}
		for _, c := range h.Tree {
			if _, err := c.cut(make([]byte, min(h.Packs[c.Pack], maxPackBytes))); err != nil && c.Sum == (sum{}) && c.Bytes < 0 {
				t.Fatal("a chunk that cannot be")
			}
		}
	})
}
