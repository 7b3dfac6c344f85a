package hub

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"go.yaml.in/yaml/v4"

	"github.com/skerry-sandbox/skerry/internal/e2e/docblock"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/serverconfig"
)

// TestDocuments: the servers that documents show are read without an error, and no key of theirs is unknown.
func TestDocuments(t *testing.T) {
	t.Parallel()
	for _, b := range docblock.Marked(t) {
		cfg, err := serverconfig.Parse([]byte(b.Text))
		if err != nil || len(cfg.List) == 0 {
			t.Errorf("%s: %v", b, err)
			continue
		}
		for _, s := range cfg.List {
			if s.Err != nil {
				t.Errorf("%s: %s: %v", b, s.Name, s.Err)
			}
			strict := json.NewDecoder(strings.NewReader(string(s.Raw)))
			strict.DisallowUnknownFields()
			if err := strict.Decode(&serverconfig.Server{}); err != nil {
				t.Errorf("%s: %s: %v", b, s.Name, err)
			}
		}
	}
}

// TestClientFiles: the settings of other programs in docs/mcp-clients.md are whole, name /mcp of one thread, and send a key.
func TestClientFiles(t *testing.T) {
	t.Parallel()
	read := map[string]func([]byte, any) error{"json": json.Unmarshal, "toml": toml.Unmarshal, "yaml": yaml.Unmarshal}
	for _, b := range docblock.Marked(t) {
		var v map[string]any
		if read[b.Lang] == nil {
			t.Errorf("%s: nobody reads %s", b, b.Lang)
		} else if err := read[b.Lang]([]byte(b.Text), &v); err != nil || len(v) == 0 {
			t.Errorf("%s: %v", b, err)
		}
		if !strings.Contains(b.Text, `http://127.0.0.1:8080/mcp/my-project`) || !strings.Contains(b.Text, "Authorization") && !strings.Contains(b.Text, "bearer_token_env_var") {
			t.Errorf("%s: no address of a thread, or no key:\n%s", b, b.Text)
		}
	}
}
