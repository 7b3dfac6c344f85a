package serverconfig

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/platform/jsonedit"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
)

// storedFile is a file as people write it.
const storedFile = `{
  "skills": {"x": true},
  "mcpServers": {
    "one": {"command": "true", "env": {"TOKEN": "${SECRET}", "B": "plain-secret"}, "future": [1, 2]},
    "two": {"type": "http", "url": "http://127.0.0.1:1/", "headers": {"Authorization": "Bearer abcdefgh"}}
  },
	"zebra": 1.50
}
`

// TestRealPlugins: the .mcp.json files of real plugins are read, their odd servers are refused by name.
func TestRealPlugins(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../../testdata/knowledge-work-plugins/*/.mcp.json")
	if err != nil || len(files) == 0 {
		t.Fatal("the test data is not there: ", err)
	}
	servers, refused := 0, 0
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", f, err)
			continue
		}
		for _, s := range cfg.List {
			servers++
			if s.Err != nil {
				refused++
				if !strings.Contains(s.Err.Error(), "url: is empty") {
					t.Errorf("%s: %s: %v", f, s.Name, s.Err)
				}
			}
		}
	}
	t.Logf("%d servers in %d files, %d with an empty url", servers, len(files), refused)
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(storedFile), "one", []byte(`{"command":"x"}`))
	f.Add([]byte(`{"mcpServers":{"a":{"ENV":{"A":"b"},"env":"x"}}}`), "a", []byte(`{"command":"x","env":{"A":"***"}}`))
	f.Add([]byte(""), "a", []byte("{\"command\":\"x\",\"\xc5\":{}}"))
	f.Fuzz(func(t *testing.T, text []byte, name string, server []byte) {
		cfg, err := Parse(text)
		if err != nil {
			return
		}
		for _, s := range cfg.List {
			if !json.Valid(Masked(s.Raw)) {
				t.Errorf("masked %q", s.Raw)
			}
		}
		merged, err := Unmasked(server, cfg.ByName[name])
		if err != nil || ParseServer(name, merged).Err != nil {
			return
		}
		out, err := jsonedit.Set(text, []string{"mcpServers"}, name, merged)
		if err != nil {
			return
		}
		again, err := Parse(out)
		if err != nil || again.ByName[name] == nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if len(again.List) < len(cfg.List) {
			t.Fatalf("a server is lost\n%s\n%s", text, out)
		}
	})
}

func TestWrongToolConfig(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`[]`:                                    "tools",
		`{"a":7}`:                               "tools",
		`{"a":{"disclosure":"secret"}}`:         `tools.a.disclosure: "secret"`,
		`{"a":{"timeout":5}}`:                   "tools.a.timeout: 5 milliseconds",
		`{"a":{"timeout":-5}}`:                  "tools.a.timeout",
		`{"a":{"timeout":9223372036854775807}}`: "tools.a.timeout",
		`{"a":{"concurrency":-1}}`:              "tools.a.concurrency: -1",
		`{"a":{"keywords":[""]}}`:               "tools.a.keywords",
		`{"a":{"keywords":["` + strings.Repeat("k", 65) + `"]}}`:         "tools.a.keywords",
		`{"a":{"summary":"` + strings.Repeat("k", maxSummary+1) + `"}}`:  "tools.a.summary",
		`{"a":{"keywords":[` + strings.Repeat(`"a",`, 50) + `"a"]}}`:     "51 keywords",
		`{"a":{"disclosure":"always","summary":"é","concurrency":1000}}`: "",
	} {
		s := ParseServer("s", []byte(`{"command":"true","tools":`+text+`}`))
		if want == "" && s.Err != nil || want != "" && (s.Err == nil || !strings.Contains(excerpt.Detail(s.Err), want)) {
			t.Errorf("%.60s: %v, want %q", text, s.Err, want)
		}
	}
}

// A new token is no new server; another address is.
func TestDefinition(t *testing.T) {
	t.Parallel()
	of := func(config string) string {
		t.Helper()
		s := ParseServer("s", []byte(config))
		if s.Err != nil {
			t.Fatal(s.Err)
		}
		d, err := s.Definition()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	base := of(`{"url":"https://a.example","headers":{"A":"1"}}`)
	if base != of(`{"url":"https://a.example","headers":{"A":"2"},"timeout":500,"drift":"record"}`) {
		t.Error("a token changes it")
	}
	if base == of(`{"url":"https://b.example"}`) || of(`{"command":"a","args":["1"]}`) == of(`{"command":"a","args":["2"]}`) {
		t.Error("an address or an argument does not change it")
	}
}
