package runs

import (
	"testing"

	sdk "github.com/skerry-sandbox/skerry/sdk/go"
)

// TestCodeRequest: a module goes as base64, and a path of one without the end of its line.
func TestCodeRequest(t *testing.T) {
	for _, c := range []struct {
		text, lang string
		want       sdk.Code
	}{
		{"\x00asm\x01\x00\x00\x00", "wasm", sdk.Code{Code: "AGFzbQEAAAA=", Language: "wasm"}},
		{"/mnt/user-data/workspace/a.wasm\n", "wasm", sdk.Code{Code: "/mnt/user-data/workspace/a.wasm", Language: "wasm"}},
		{"\x00asm\n", "py", sdk.Code{Code: "\x00asm\n", Language: "py"}},
	} {
		if got := codeRequest(c.text, c.lang, "", "", 0); got.Code != c.want.Code || got.Language != c.want.Language {
			t.Errorf("%q: %+v", c.text, got)
		}
	}
}
