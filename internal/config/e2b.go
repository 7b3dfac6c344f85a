package config

// E2B says whether the server answers clients of E2B at its address, and what their templates are here: see docs/e2b.md.
type E2B struct {
	Enabled bool `yaml:"e2b"`
	// Templates are templates of this server, by the names that clients of E2B ask for.
	Templates map[string]string `yaml:"e2b_templates"`
}
