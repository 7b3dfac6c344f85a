package hub

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
)

// TestMasksSentBack: what was shown masked can be sent back as it was shown, and nothing is lost.
func TestMasksSentBack(t *testing.T) {
	t.Parallel()
	const file = `{"mcpServers":{"a":{"command":"true","args":["--token","first-secret","x","--key=second-secret"]},"b":{"url":"http://u:third-secret@127.0.0.1:1/mcp"}}}`
	r := open(t, file)
	ctx := context.Background()
	shown, err := r.Servers.ServerConfigs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range shown {
		if strings.Contains(string(c), "secret") || !strings.Contains(string(c), serverconfig.Mask) {
			t.Errorf("%s: %s", name, c)
		}
		if err := r.Servers.PutServer(ctx, name, c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := r.Servers.PutServer(ctx, "a", []byte(`{"command":"false","args":["new","--key=***","--token","fresh"]}`)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(r.path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"--key=second-secret"`, `"fresh"`, "third-secret@"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is lost: %s", want, text)
		}
	}
	for name, body := range map[string]string{
		"a": `{"command":"true","args":["--password=***"]}`,
		"b": `{"url":"http://u:***@elsewhere.example/mcp"}`, // a secret must not be sent to another host
		"c": `{"command":"true","args":["***"]}`,
	} {
		if err := r.Servers.PutServer(ctx, name, []byte(body)); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%s: %v", body, err)
		}
	}
}
