package serverconfig

import (
	"slices"
	"testing"
)

func TestMaskedArguments(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want []string }{
		{[]string{"-y", "@org/server", "--port", "8080", "/srv/files"}, []string{"-y", "@org/server", "--port", "8080", "/srv/files"}},
		{[]string{"--api-key", "abc", "--token=def", "--verbose"}, []string{"--api-key", "***", "--token=***", "--verbose"}},
		{[]string{"--token", "${TOKEN}", "--secret=${S:-x}"}, []string{"--token", "${TOKEN}", "--secret=${S:-x}"}},
		{[]string{"--no-auth", "--stdio"}, []string{"--no-auth", "--stdio"}},
		{[]string{"--header", "Authorization: Bearer sk-abcdefghijkl"}, []string{"--header", "Authorization: Bearer ***"}},
		{[]string{"postgresql://me:hunter2@db/app?sslmode=off"}, []string{"postgresql://me:***@db/app?sslmode=off"}},
		{[]string{"ghp_0123456789abcdef", "DB_PASSWORD=x"}, []string{"***", "DB_PASSWORD=***"}},
	} {
		if got := maskedArgs(c.in); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
	for in, want := range map[string]string{
		"https://mcp.example.com/mcp":                            "https://mcp.example.com/mcp",
		"https://u:p@h:1/a?api_key=1&page=2#f":                   "https://u:***@h:1/a?api_key=***&page=2#f",
		"https://h/s/Zm9vYmFyYmF6cXV4MTIzNDU2/mcp":               "https://h/s/***/mcp",
		"https://h/${KEY}/mcp?token=${T}":                        "https://h/${KEY}/mcp?token=${T}",
		"https://h/a-long-path-of-plain-words?x=short":           "https://h/a-long-path-of-plain-words?x=short",
		"https://h/mcp?x=0123456789abcdef0123456789abcdef&y=eyJ": "https://h/mcp?x=***&y=eyJ",
		"https://h/mcp?a%70i_key=v":                              "https://h/mcp?a%70i_key=***",
		"not a url":                                              "not a url",
	} {
		if got := maskedURL(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}
