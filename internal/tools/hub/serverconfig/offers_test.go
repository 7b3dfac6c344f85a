package serverconfig

import (
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
)

// TestOffers: a tool has to be enabled, not disabled, and not hidden. Its own disclosure counts before the server's.
func TestOffers(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]string{ // the disclosures of one and two; - is not offered
		`{}`:                       ", ",
		`{"enabledTools":["two"]}`: "-, ",
		`{"enabledTools":null}`:    ", ",
		`{"enabledTools":[]}`:      "-, -",
		`{"enabledTools":["one","two"],"disabledTools":["two"]}`:            ", -",
		`{"disclosure":"deferred"}`:                                         "deferred, deferred",
		`{"disclosure":"deferred","tools":{"two":{"summary":"x"}}}`:         "deferred, deferred",
		`{"disclosure":"deferred","tools":{"two":{"disclosure":"always"}}}`: "deferred, always",
		`{"disclosure":"hidden","tools":{"two":{"disclosure":"always"}}}`:   "-, always",
		`{"disclosure":"always","tools":{"one":{"disclosure":"hidden"}}}`:   "-, always",
		`{"enabledTools":["one"],"tools":{"two":{"disclosure":"always"}}}`:  ", -",
	} {
		s := ParseServer("s", []byte(`{"command":"true",`+strings.TrimPrefix(config, "{")))
		if config == "{}" {
			s = ParseServer("s", []byte(`{"command":"true"}`))
		}
		if s.Err != nil {
			t.Errorf("%s: %v", config, s.Err)
			continue
		}
		var shown []string
		for _, name := range []string{"one", "two"} {
			tool := sandbox.Tool{Name: name}
			if s.Describes(name) {
				s.Apply(&tool)
			}
			if !s.Offers(name) {
				tool.Disclosure = "-"
			}
			shown = append(shown, string(tool.Disclosure))
		}
		if got := strings.Join(shown, ", "); got != want {
			t.Errorf("%s: %q, want %q", config, got, want)
		}
	}
}

// TestRefusedKeys: what is wrong with keys of a server is told by the key's name; the values of envs are shown to no one.
func TestRefusedKeys(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]string{
		`{"command":"true","envs":{"A":"secret-value"}}`:                                  "envs: is no key here: write env,",
		`{"command":"true","Envs":{"A":"secret-value"}}`:                                  "envs: is no key here",
		`{"command":"true","disclosure":"sometimes"}`:                                     `disclosure: "sometimes" is not always, deferred or hidden`,
		`{"command":"true","enabledTools":"echo"}`:                                        "enabledTools: has the wrong type",
		`{"command":"true","enabledTools":[` + strings.Repeat(`"a",`, MaxTools) + `"a"]}`: "enabledTools: 2001 names, at most 2000",
	} {
		s := ParseServer("s", []byte(config))
		if s.Err == nil || !strings.Contains(excerpt.Detail(s.Err), want) {
			t.Errorf("%.60s: %v, want %q", config, s.Err, want)
		}
		if shown := string(Masked(s.Raw)); strings.Contains(shown, "secret-value") {
			t.Errorf("shown: %s", shown)
		}
	}
}
