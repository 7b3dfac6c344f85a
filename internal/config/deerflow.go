package config

import "net/url"

// DeerFlow says whether DeerFlow may have its sandboxes here, at /deerflow.
type DeerFlow struct {
	Enabled bool `yaml:"enabled"`
	// URL is http(s)://host[:port] where DeerFlow reaches this server, for the addresses of sandboxes; empty: where its request came to.
	URL string `yaml:"url"`
}

func (d DeerFlow) check(bad func(key, format string, args ...any)) {
	if d.URL == "" {
		return
	}
	u, err := url.Parse(d.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		bad("deerflow.url", "%q is not http(s)://host[:port]", d.URL)
	}
}
