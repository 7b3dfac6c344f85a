package config

// LibreChat says whether LibreChat's code interpreter may be here, at /librechat/v1.
type LibreChat struct {
	Enabled bool `yaml:"enabled"`
	// Template is that of its sandboxes; empty: default_template.
	Template string `yaml:"template"`
}
