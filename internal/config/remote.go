package config

import (
	"net/netip"
	"net/url"
	"strings"
)

// Remote says at which service sandboxes are, that speaks E2B's API.
type Remote struct {
	// URL is that of the service's API, as https://api.example.com.
	URL string `yaml:"url"`
	// SandboxURL is where the daemons of all sandboxes answer; empty: each has a host of its own in the domain of URL.
	SandboxURL string `yaml:"sandbox_url"`
	// APIKey is the service's; or APIKeyFile has it.
	APIKey     string `yaml:"api_key"`
	APIKeyFile string `yaml:"api_key_file"`
	// Template is the service's, for templates that name none.
	Template string `yaml:"template"`
	// Bridge is the static skerry-bridge; empty: beside this program.
	Bridge string `yaml:"bridge"`
}

// Domain is where the service's sandboxes have hosts of their own; "": the URL does not say.
func (r *Remote) Domain() string {
	u, err := url.Parse(r.URL)
	if err != nil {
		return ""
	}
	domain, ok := strings.CutPrefix(u.Host, "api.")
	if !ok {
		return ""
	}
	return domain
}

// service reports whether text is the URL of a server, and whether that is this machine. A key goes there, so that it is https.
func service(text string) (ok, here bool) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return false, false
	}
	address, err := netip.ParseAddr(u.Hostname())
	here = u.Hostname() == "localhost" || err == nil && address.IsLoopback()
	return u.Scheme == "https" || u.Scheme == "http" && here, here
}

func (r *Remote) check(bad func(key, format string, args ...any)) {
	ok, here := service(r.URL)
	if !ok {
		bad("remote.url", "%.200q is not https://HOST[:PORT] of an API of E2B, as https://api.e2b.app, or http:// and a loopback address", r.URL)
	}
	switch valid, _ := service(r.SandboxURL); {
	case r.SandboxURL != "" && !valid:
		bad("remote.sandbox_url", "%.200q is not https://HOST[:PORT], or http:// and a loopback address", r.SandboxURL)
	case r.SandboxURL == "" && ok && r.Domain() == "":
		bad("remote.sandbox_url", "is empty, and remote.url does not begin with https://api.: name the URL where the daemons of sandboxes answer, which at a Skerry is remote.url itself")
	}
	switch {
	case r.APIKey != "" && r.APIKeyFile != "":
		bad("remote.api_key", "is set, and so is remote.api_key_file: set one of the two")
	case r.APIKey == "" && r.APIKeyFile == "" && ok && !here:
		bad("remote.api_key", "is empty: set it, or remote.api_key_file, to a key of the service")
	case strings.ContainsAny(r.APIKey, " \t\r\n"):
		bad("remote.api_key", "has blanks in it: it is one word")
	}
	if r.Template == "" {
		bad("remote.template", "is empty: name a template of the service, as base")
	}
}
