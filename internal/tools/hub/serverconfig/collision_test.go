package serverconfig

import (
	"strings"
	"testing"
)

// TestCollisionsGoByName: which of two servers is refused does not depend on the order of the file. A server
// that is wrong or off takes no name from another.
func TestCollisionsGoByName(t *testing.T) {
	t.Parallel()
	for text, refused := range map[string]string{
		`{"mcpServers":{"a_b":{"command":"x"},"a-b":{"command":"x"}}}`:                 "a_b",
		`{"mcpServers":{"a-b":{"command":"x"},"a_b":{"command":"x"}}}`:                 "a_b",
		`{"mcpServers":{"a-b":{"command":"x","enabled":false},"a_b":{"command":"x"}}}`: "",
		`{"mcpServers":{"a-b":{"command":""},"a_b":{"command":"x"}}}`:                  "",
	} {
		cfg, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range cfg.List {
			collides := s.Err != nil && strings.Contains(s.Err.Error(), `as those of the server "a-b" are`)
			if collides != (s.Name == refused) {
				t.Errorf("%s: %s: %v", text, s.Name, s.Err)
			}
		}
	}
}
