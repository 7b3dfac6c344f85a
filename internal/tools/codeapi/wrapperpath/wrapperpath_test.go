package wrapperpath

import (
	"regexp"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestFileName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"read_text_file": "read_text_file", "API-get-user": "API-get-user", "../x": "_._x", ".hidden": "_hidden", "größe": "gr__e", "": "_",
		"日本": "__", "x.d": "x_d", "x.d.ts": "x_d.ts", "x.d.d": "x_d_d", "a/b c": "a_b_c", "__init__.py": "__init___py",
		strings.Repeat("n", 300): strings.Repeat("n", MaxFileName),
	} {
		if got := FileName(name); got != want {
			t.Errorf("FileName(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestPlace(t *testing.T) {
	t.Parallel()
	tools := []sandbox.Tool{{Server: "Docs", Name: "Get"}, {Server: "docs", Name: "get"}, {Server: "docs", Name: "Index"}}
	Place(tools)
	for i, want := range []string{"Docs/Get.ts", "Docs/Get.ts", "Docs/index.ts"} {
		if got := strings.TrimPrefix(tools[i].WrapperPath, sandbox.CodeAPIDir+"/servers/"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := Of("Docs", "Get"); got != tools[0].WrapperPath {
		t.Errorf("%q, want %q", got, tools[0].WrapperPath)
	}
}

func FuzzFileName(f *testing.F) {
	for _, s := range []string{"", ".", "..", "a/b", "x.d", "x.d.y", "__init__.py", "\x00"} {
		f.Add(s)
	}
	form := regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}$`)
	f.Fuzz(func(t *testing.T, name string) {
		got := FileName(name)
		if !form.MatchString(got) || strings.HasSuffix(got, ".d") {
			t.Errorf("%q", got)
		}
		if again := FileName(got); again != got {
			t.Errorf("%q becomes %q, and that %q", name, got, again)
		}
	})
}
