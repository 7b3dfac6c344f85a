package hub

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestIsolationConfig(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`true`:                                "",
		`false`:                               "",
		`{"egress":["a.example"]}`:            "",
		`{"mounts":{"/srv/a":"/x"}}`:          "",
		`{"egres":["a.example"]}`:             "sandbox",
		`"yes"`:                               "sandbox",
		`{"mounts":{"/etc":"/x"}}`:            "sandbox.mounts",
		`{"mounts":{"/srv/home":"/x"}}`:       "sandbox.mounts",
		`{"mounts":{"/srv/home/x":"/x"}}`:     "sandbox.mounts",
		`{"mounts":{"/srv/../etc":"/x"}}`:     "sandbox.mounts",
		`{"mounts":{"/srv/a":"relative/x"}}`:  "sandbox.mounts",
		`true,"run_as":5`:                     "run_as",
		`true,"url":"http://x","type":"http"`: "sandbox",
	} {
		s := parseServer("s", fmt.Appendf(nil, `{"command":"x","sandbox":%s}`, text))
		switch {
		case want == "" && s.err != nil:
			t.Errorf("%s: %v", text, s.err)
		case want == "":
			if s.Sandbox.on != !strings.HasPrefix(text, "false") {
				t.Errorf("%s: on is %v", text, s.Sandbox.on)
			}
		case sandbox.KindOf(s.err) != sandbox.Invalid || !strings.HasPrefix(s.err.Error(), want+":"):
			t.Errorf("%s: %v, want it to be about %s", text, s.err, want)
		}
	}
	many := map[string]string{}
	for i := range maxIsolatedMounts + 1 {
		many[fmt.Sprintf("/srv/%d", i)] = "/x"
	}
	raw, err := json.Marshal(map[string]any{"command": "x", "sandbox": map[string]any{"mounts": many}})
	if err != nil {
		t.Fatal(err)
	}
	if s := parseServer("s", raw); s.err == nil {
		t.Error("too many mounts were taken")
	}
}
