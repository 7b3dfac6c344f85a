package helm

import (
	"os"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/skerry-sandbox/skerry/internal/config"
)

// TestConfig: the server takes the configuration that the chart writes, with the variables that the chart sets.
func TestConfig(t *testing.T) {
	env := map[string]string{"SKERRY_REDIS": "redis://redis:6379", "SKERRY_PEER_LISTEN": "10.0.0.5:8443"}
	for _, name := range cases {
		text := ""
		for _, o := range objects(t, rendered(t, name)) {
			if found, ok := at(o, "data", "config.yaml").(string); ok {
				text = found
			}
		}
		var doc map[string]any
		if err := yaml.Unmarshal([]byte(text), &doc); err != nil || doc["kubernetes"] == nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		file := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load(file, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
		if err == nil {
			err = cfg.Check()
		}
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
}
