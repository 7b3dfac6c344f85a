package serverconfig

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
		s := ParseServer("s", fmt.Appendf(nil, `{"command":"x","sandbox":%s}`, text))
		switch {
		case want == "" && s.Err != nil:
			t.Errorf("%s: %v", text, s.Err)
		case want == "":
			if s.Sandbox.On != !strings.HasPrefix(text, "false") {
				t.Errorf("%s: on is %v", text, s.Sandbox.On)
			}
		case sandbox.KindOf(s.Err) != sandbox.Invalid || !strings.HasPrefix(s.Err.Error(), want+":"):
			t.Errorf("%s: %v, want it to be about %s", text, s.Err, want)
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
	if s := ParseServer("s", raw); s.Err == nil {
		t.Error("too many mounts were taken")
	}
}
