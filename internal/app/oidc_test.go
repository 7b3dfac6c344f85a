package app

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/e2e/docblock"
)

// TestIdentityConfiguration reads the configurations that docs/identity.md shows.
func TestIdentityConfiguration(t *testing.T) {
	t.Parallel()
	blocks := docblock.Marked(t)
	if len(blocks) != 2 {
		t.Fatalf("the document has %d configurations", len(blocks))
	}
	for _, b := range blocks {
		block := b.Text
		file := filepath.Join(t.TempDir(), "skerry.yaml")
		if err := os.WriteFile(file, []byte(block), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load(file, func(string) (string, bool) { return "", false })
		if err == nil {
			err = cfg.Check()
		}
		if err != nil {
			t.Fatalf("%v:\n%s", err, block)
		}
		issuers, err := openIssuers(cfg.OIDC, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatalf("%v:\n%s", err, block)
		}
		if err := issuers.Close(); err != nil {
			t.Error(err)
		}
		if len(cfg.OIDC) == 0 && cfg.TLS.ClientCA == "" {
			t.Errorf("it configures nothing:\n%s", block)
		}
	}
	bad := []config.OIDCIssuer{{Issuer: "http://login.example.com", Algorithms: []string{"HS256"}}, {Issuer: "https://x.example", Audiences: []string{"a"}, Tenant: "t", DefaultRole: "root"}}
	_, err := openIssuers(bad, slog.New(slog.DiscardHandler))
	for _, want := range []string{"oidc[0]: issuer", "HS256", "audiences", "tenant_claim", "oidc[1]: default_role"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named: %v", want, err)
		}
	}
}
