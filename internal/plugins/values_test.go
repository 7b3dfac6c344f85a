package plugins

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// backwards is a Sealer through which everybody sees, but not strings.Contains.
type backwards struct{ stale bool }

func (backwards) Seal(purpose string, plain []byte) ([]byte, error) {
	out := append([]byte(purpose+"\x00"), plain...)
	slices.Reverse(out)
	return out, nil
}

func (backwards) Open(purpose string, sealed []byte) ([]byte, error) {
	out := slices.Clone(sealed)
	slices.Reverse(out)
	plain, ok := bytes.CutPrefix(out, []byte(purpose+"\x00"))
	if !ok {
		return nil, errors.New("sealed as something else")
	}
	return plain, nil
}

func (b backwards) Stale(string, []byte) bool { return b.stale }

// A sensitive value is in no file as it is; the name of a secret is.
func TestSensitiveValuesAreEncrypted(t *testing.T) {
	b := newBed(t, nil)
	b.values.sealer = backwards{}
	files := plainPlugin("v")
	files[".mcp.json"] = `{"mcpServers":{"web":{"url":"https://x.example/mcp","headers":{"A":"${user_config.KEY}"}}}}`
	if _, err := b.Install(ctx, caller("ann"), bytes.NewReader(tarOf(t, "", files)), sandbox.PluginInstall{}); err != nil {
		t.Fatal(err)
	}
	value := func() string {
		t.Helper()
		servers, err := b.Servers(caller("ann").Owner)
		if err != nil || len(servers.List) != 1 {
			t.Fatal(servers, err)
		}
		return servers.List[0].Values["user_config.KEY"]
	}
	for _, stale := range []bool{false, true} {
		if _, err := b.SetValues(ctx, caller("ann"), "v", map[string]any{"KEY": "secret-value"}); err != nil {
			t.Fatal(err)
		}
		b.values.sealer = backwards{stale}
		if n, err := b.Renew(ctx); err != nil || (n == 1) != stale {
			t.Errorf("stale %v: %d renewed, %v", stale, n, err)
		}
		sealed, ok := strings.CutPrefix(value(), sandbox.SealedValue)
		raw, err := base64.StdEncoding.DecodeString(sealed)
		if !ok || err != nil {
			t.Fatalf("%q", value())
		}
		if plain, err := b.values.sealer.Open(sandbox.PluginValuePurpose(caller("ann").Owner), raw); err != nil || string(plain) != "secret-value" {
			t.Errorf("%q, %v", plain, err)
		}
		text, err := os.ReadFile(strings.TrimSuffix(b.ext.Path(), ".json") + ".d/" + caller("ann").Tenant + "/ann.json")
		if err != nil || strings.Contains(string(text), "secret-value") {
			t.Errorf("%s, %v", text, err)
		}
	}
	if _, err := b.SetValues(ctx, caller("ann"), "v", map[string]any{"KEY": "${secret:CRM}"}); err != nil || value() != "${secret:CRM}" {
		t.Errorf("%q, %v", value(), err)
	}
}
