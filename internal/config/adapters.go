package config

// Adapters say which other protocols the server answers.
type Adapters struct {
	E2B `yaml:",inline"`
	// DeerFlow answers DeerFlow as its sandbox provisioner does.
	DeerFlow DeerFlow `yaml:"deerflow"`
	// LibreChat answers LibreChat as its code interpreter does.
	LibreChat LibreChat `yaml:"librechat"`
	// Jupyter answers clients as a Jupyter server does.
	Jupyter Jupyter `yaml:"jupyter"`
}
