package skerry_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	skerry "github.com/skerry-sandbox/skerry/sdk/go"
)

// TestDeprecated: a route that the server calls deprecated is logged once, another never. It is not parallel: the log is
// the process's.
func TestDeprecated(t *testing.T) {
	var log bytes.Buffer
	former := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(former) })
	c, _ := scripted(t, skerry.Options{},
		says(200, "{}"),
		says(200, "{}", "Deprecation", "@1688169599", "Sunset", "Tue, 01 Jun 2027 00:00:00 GMT", "Link", `</docs#old>; rel="deprecation"`))
	for range 3 {
		if err := c.Call(t.Context(), skerry.Request{Method: "GET", Path: "/api/old"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if text := log.String(); strings.Count(text, "deprecates") != 1 || !strings.Contains(text, "path=/api/old") || !strings.Contains(text, "01 Jun 2027") {
		t.Errorf("the log: %s", text)
	}
}
