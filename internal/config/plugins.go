package config

import (
	"net/netip"
	"path/filepath"

	"github.com/skerry-sandbox/skerry/internal/platform/networks"
)

// Plugins says what plugins may do.
type Plugins struct {
	// Path is the folder that holds installed/, whose folders are plugins of all users; empty: the plugins that are
	// compiled in.
	Path string `yaml:"path"`
	// AutoMergeMCP puts the MCP servers of enabled plugins into the tool sets of their users.
	AutoMergeMCP bool `yaml:"auto_merge_mcp"`
	// Addresses are networks that plugins and archives of skills may be fetched from, and MCP servers of
	// plugins connected to, besides the public internet, such as 10.1.0.0/16. Only these may be reached by
	// http://.
	Addresses []string `yaml:"addresses"`
	// Folders of this host may be installed from, as they are and as git repositories by file://.
	Folders []string `yaml:"folders"`
	// Egress are the hosts that MCP servers of plugins that are programs may reach from their sandboxes, such as registry.npmjs.org.
	Egress []string `yaml:"egress"`
	// PackageHosts are what an MCP server in a sandbox, of a plugin or not, may reach besides its own hosts while it is installed.
	PackageHosts []string `yaml:"package_hosts"`
	// RunCommands lets !`command` in the commands of plugins run, in the thread's sandbox, before the agent sees the text.
	RunCommands bool `yaml:"run_commands"`
}

func defaultPlugins() Plugins {
	return Plugins{AutoMergeMCP: true, PackageHosts: []string{"registry.npmjs.org", "pypi.org", "files.pythonhosted.org"}}
}

// Prefixes are Addresses, parsed. A single address is a network of one.
func (p Plugins) Prefixes() ([]netip.Prefix, error) { return networks.Parse(p.Addresses) }

func (p Plugins) check(bad func(key, format string, args ...any)) {
	if _, err := p.Prefixes(); err != nil {
		bad("plugins.addresses", "%s", err)
	}
	if filepath.Base(p.Path) == "installed" {
		bad("plugins.path", "name the folder that holds installed/, not installed/ itself")
	}
	for _, f := range p.Folders {
		if !filepath.IsAbs(f) || filepath.Clean(f) == "/" {
			bad("plugins.folders", "%q is not an absolute path of a folder below /", f)
		}
	}
}
