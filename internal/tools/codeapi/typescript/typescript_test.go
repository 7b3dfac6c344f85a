package typescript

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestStripTypesReadsNoFileOfTheHost(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret.ts")
	if err := os.WriteFile(secret, []byte("export const x = 'top-secret'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, code := range []string{
		"import { x } from '" + secret + "'; console.log(x)",
		"import { x } from '../../../../../../../../" + secret + "'; console.log(x)",
		"console.log(require('" + secret + "'))",
	} {
		out, err := StripTypes(t.Context(), code, sandbox.ToolSet{})
		if err == nil && strings.Contains(out, "top-secret") {
			t.Errorf("%s reads it:\n%s", code, out)
		}
	}
	if _, err := StripTypes(t.Context(), "const a: = 1", sandbox.ToolSet{}); !errors.Is(err, sandbox.Invalid) || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("a syntax error: %v", err)
	}
	if out, err := StripTypes(t.Context(), "const a: number = 1; console.log(a)", sandbox.ToolSet{}); err != nil || strings.Contains(out, "number") {
		t.Errorf("%v: %s", err, out)
	}
}

// hostileText are beginnings of programs that make a parser call itself, each once more for every repetition.
var hostileText = []string{"(", "[", "{", "!", "- ", "a=>", "a?", "`${", "<T>", "if(a)", "new ", "x=", "(/*)*/", "a(", "async(", "class A extends ", "a?(b:c=>", "[...", "@(", "type A<B extends "}

// TestNoTextEndsTheServer: a text of the largest size that is nested as deeply as it can be has an answer.
func TestNoTextEndsTheServer(t *testing.T) {
	t.Parallel()
	size := sandbox.MaxCodeBytes
	texts := hostileText
	if testing.Short() {
		texts, size = texts[:1], 512<<10
	}
	for _, open := range texts {
		text := strings.Repeat(open, size/len(open))
		if _, err := StripTypes(t.Context(), text, sandbox.ToolSet{}); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%q: %v", open, err)
		}
	}
	if _, err := StripTypes(t.Context(), "const a: number = 1", sandbox.ToolSet{}); err != nil {
		t.Errorf("after them: %v", err)
	}
}

func BenchmarkStripTypes(b *testing.B) {
	for b.Loop() {
		if _, err := StripTypes(b.Context(), "const a: number = 1; console.log(a)", sandbox.ToolSet{}); err != nil {
			b.Fatal(err)
		}
	}
}
