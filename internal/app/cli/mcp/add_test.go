package mcp

import (
	"encoding/json"
	"testing"
)

func TestServerConfig(t *testing.T) {
	for _, c := range []struct {
		what, env, headers []string
		want               string
	}{
		{[]string{"https://x/mcp"}, nil, nil, `{"type":"http","url":"https://x/mcp"}`},
		{[]string{"https://x/mcp"}, nil, []string{"Authorization: Bearer ${T}"}, `{"headers":{"Authorization":"Bearer ${T}"},"type":"http","url":"https://x/mcp"}`},
		{[]string{"npx", "-y", "pkg"}, []string{"A=b=c"}, nil, `{"args":["-y","pkg"],"command":"npx","env":{"A":"b=c"}}`},
		{[]string{"https://x/mcp"}, []string{"A=b"}, nil, ""},
		{[]string{"npx"}, nil, []string{"A: b"}, ""},
		{[]string{"npx"}, []string{"=b"}, nil, ""},
	} {
		config, err := serverConfig(c.what, c.env, c.headers)
		text, _ := json.Marshal(config)
		if c.want == "" && err == nil || c.want != "" && string(text) != c.want {
			t.Errorf("%v: %s %v", c, text, err)
		}
	}
}
