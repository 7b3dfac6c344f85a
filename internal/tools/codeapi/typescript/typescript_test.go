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
		out, err := StripTypes(code, sandbox.ToolSet{})
		if err == nil && strings.Contains(out, "top-secret") {
			t.Errorf("%s reads it:\n%s", code, out)
		}
	}
	if _, err := StripTypes("const a: = 1", sandbox.ToolSet{}); !errors.Is(err, sandbox.Invalid) || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("a syntax error: %v", err)
	}
	if out, err := StripTypes("const a: number = 1; console.log(a)", sandbox.ToolSet{}); err != nil || strings.Contains(out, "number") {
		t.Errorf("%v: %s", err, out)
	}
}
