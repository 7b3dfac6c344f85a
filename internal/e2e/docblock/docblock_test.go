package docblock

import (
	"fmt"
	"slices"
	"testing"
	"testing/fstest"
)

func TestRead(t *testing.T) {
	page := "# A\n\n<!-- tested by internal/x TestA -->\n```sh\necho 1\n\necho 2\n```\n\n```\none\n…two…three\n```\n\ntext\n\n```\nplain\n```\n" +
		"* in a list\n\n  <!-- not run: a picture -->\n  ```\n  x\n  ```\n\n<!-- not run: too far away -->\n\n```yaml\na: 1\n```\n<!-- tested by a.py -->\n```console\n$ run it\nout\n$ again\n```\n"
	tree := fstest.MapFS{"docs/api/made.md": {Data: []byte("# B\n\n<!-- made by a program -->\n\n```\nx\n```\n")}, "docs/a.md": {Data: []byte(page)}, "docs/a.txt": {Data: []byte(page)}}
	for _, top := range pages {
		if tree[top] == nil && top != "docs" {
			tree[top+"/none.txt"] = &fstest.MapFile{}
		}
	}
	got, err := Read(tree)
	if err != nil || len(got) != 5 {
		t.Fatalf("%d blocks: %+v, %v", len(got), got, err)
	}
	for i, want := range []Block{
		{Page: "docs/a.md", Line: 4, Lang: "sh", Text: "echo 1\n\necho 2\n", Test: "internal/x TestA", Prints: "one\n…two…three\n"},
		{Page: "docs/a.md", Line: 17, Text: "plain\n"},
		{Page: "docs/a.md", Line: 23, Text: "  x\n", Reason: "a picture"},
		{Page: "docs/a.md", Line: 29, Lang: "yaml", Text: "a: 1\n"},
		{Page: "docs/a.md", Line: 33, Lang: "console", Text: "$ run it\nout\n$ again\n", Test: "a.py"},
	} {
		if got[i] != want {
			t.Errorf("%+v\nwant %+v", got[i], want)
		}
	}
	if missing := got[0].Missing("one, 2 two 3"); !slices.Equal(missing, []string{"…two…three"}) {
		t.Errorf("missing: %q", missing)
	}
	if c := got[4]; c.Commands() != "run it\nagain\n" || fmt.Sprint(c.Shown()) != "[out]" {
		t.Errorf("%q, %q", c.Commands(), c.Shown())
	}
}
