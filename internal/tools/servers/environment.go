package servers

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/egress"
)

// registry is where a program that fetches packages gets them from.
type registry struct {
	variables []string // that name another one, as URL
	usual     string
	offline   string // what is set where it cannot be reached
}

// registries are those of the programs that servers are started by. One that cannot be reached is tried again and
// again, for a minute: without it the programs take what they have fetched before, or say at once what is missing.
var registries = []registry{
	{[]string{"npm_config_registry", "NPM_CONFIG_REGISTRY"}, "registry.npmjs.org", "npm_config_offline=true"},
	{[]string{"UV_DEFAULT_INDEX", "UV_INDEX_URL"}, "pypi.org", "UV_OFFLINE=1"},
	{[]string{"PIP_INDEX_URL"}, "pypi.org", "PIP_NO_INDEX=1"},
}

// environment is what a server gets: its own variables go before those of the template, and those before ours.
func environment(template map[string]string, spec Spec) []string {
	given := maps.Clone(template)
	if given == nil {
		given = map[string]string{}
	}
	put(given, spec.Env...)
	env := map[string]string{}
	put(env, "HOME="+HomeDir, "LANG=C.UTF-8", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	// What was fetched is used without a question for a newer one, which costs each start a second.
	put(env, "npm_config_prefer_offline=true", "npm_config_update_notifier=false", "npm_config_fund=false", "npm_config_audit=false")
	for _, r := range registries {
		if !r.reached(given, spec.Egress) {
			put(env, r.offline)
		}
	}
	if !spec.Egress.Empty() {
		proxy := "http://127.0.0.1:" + strconv.Itoa(sandbox.EgressPort)
		// Node reads the proxy since 22.21 and 24, when it is told to.
		put(env, "HTTPS_PROXY="+proxy, "https_proxy="+proxy, "NO_PROXY=localhost,127.0.0.1,::1", "no_proxy=localhost,127.0.0.1,::1", "NODE_USE_ENV_PROXY=1")
	}
	maps.Copy(env, given)
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// put adds variables that are written NAME=value.
func put(env map[string]string, pairs ...string) {
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
}

// reached reports whether a server may connect to the registry that its environment names.
func (r registry) reached(env map[string]string, rules egress.Rules) bool {
	host := r.usual
	for _, name := range r.variables {
		if u, err := url.Parse(env[name]); err == nil && u.Host != "" {
			host = u.Host
			break
		}
	}
	if !strings.Contains(host, ":") {
		host += ":443"
	}
	_, _, ok := rules.Allow(host)
	return ok
}
