package config

// Adapters say what the server answers beside its API: other protocols, and the web console.
type Adapters struct {
	E2B `yaml:",inline"`
	// DeerFlow answers DeerFlow as its sandbox provisioner does.
	DeerFlow DeerFlow `yaml:"deerflow"`
	// LibreChat answers LibreChat as its code interpreter does.
	LibreChat LibreChat `yaml:"librechat"`
	// Jupyter answers clients as a Jupyter server does.
	Jupyter Jupyter `yaml:"jupyter"`
	// Console is the web console.
	Console Console `yaml:"console"`
}

// Console says whether the web console is at /ui.
type Console struct {
	Enabled bool `yaml:"enabled"`
}
