package config

// Jupyter says whether clients of a Jupyter server may be here, at /jupyter.
type Jupyter struct {
	Enabled bool `yaml:"enabled"`
	// Template is that of its kernels; empty: default_template.
	Template string `yaml:"template"`
}
