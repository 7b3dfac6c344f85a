package mcp

import "testing"

func TestShownURI(t *testing.T) {
	for _, server := range []string{"fs", "odd name/", "a%2Fb", "ü", "a/b/c", "{x}", "?#"} {
		for _, uri := range []string{"f:///a", "/", "demo://x/{id}", "a b", "skerry-mcp://fs/x", "%2F"} {
			s, u, ok := serverOfURI(shownURI(server, uri))
			if !ok || s != server || u != uri {
				t.Errorf("%q %q: %q %q %v", server, uri, s, u, ok)
			}
		}
	}
}
