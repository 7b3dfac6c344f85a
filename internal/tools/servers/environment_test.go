package servers

import (
	"slices"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/tools/egress"
)

// TestEnvironment: a registry that cannot be reached is not tried, and what is set nearer to the server goes first.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		template map[string]string
		env      []string
		egress   []string
		want     []string // of those that begin as below
	}{
		"no way out":        {nil, nil, nil, []string{"PIP_NO_INDEX=1", "UV_OFFLINE=1", "npm_config_offline=true"}},
		"another host":      {nil, nil, []string{"api.example.com"}, []string{"HTTPS_PROXY=http://127.0.0.1:9877", "PIP_NO_INDEX=1", "UV_OFFLINE=1", "npm_config_offline=true"}},
		"npm":               {nil, nil, []string{"registry.npmjs.org"}, []string{"HTTPS_PROXY=http://127.0.0.1:9877", "PIP_NO_INDEX=1", "UV_OFFLINE=1"}},
		"PyPI":              {nil, nil, []string{"pypi.org", "files.pythonhosted.org"}, []string{"HTTPS_PROXY=http://127.0.0.1:9877", "npm_config_offline=true"}},
		"one of the house":  {map[string]string{"npm_config_registry": "https://npm.corp.example/r/"}, []string{"UV_DEFAULT_INDEX=https://pypi.corp.example:8443/simple"}, []string{"npm.corp.example", "pypi.corp.example:8443"}, []string{"HTTPS_PROXY=http://127.0.0.1:9877", "PIP_NO_INDEX=1"}},
		"not that one":      {map[string]string{"npm_config_registry": "https://npm.corp.example/"}, nil, []string{"registry.npmjs.org", "pypi.org"}, []string{"HTTPS_PROXY=http://127.0.0.1:9877", "npm_config_offline=true"}},
		"said by the owner": {map[string]string{"UV_OFFLINE": "template"}, []string{"UV_OFFLINE=0", "npm_config_offline=false"}, nil, []string{"PIP_NO_INDEX=1", "UV_OFFLINE=0", "npm_config_offline=false"}},
	} {
		rules, err := egress.ParseRules(c.egress)
		if err != nil {
			t.Fatal(err)
		}
		all := environment(c.template, Spec{Env: c.env, Egress: rules})
		var got []string
		for _, pair := range all {
			if strings.HasPrefix(pair, "PIP_NO") || strings.HasPrefix(pair, "UV_OFF") || strings.HasPrefix(pair, "npm_config_offline") || strings.HasPrefix(pair, "HTTPS_") {
				got = append(got, pair)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if !slices.Contains(all, "HOME="+HomeDir) {
			t.Errorf("%s: no home in %q", name, all)
		}
	}
}
