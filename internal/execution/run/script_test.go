package run

import (
	"slices"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestScriptArgv: the template names the runtime of a script; a script that says itself what runs it keeps that.
func TestScriptArgv(t *testing.T) {
	at := func(js string, d *sandbox.DenoPermissions) instance.Template {
		var t instance.Template
		t.JavaScript, t.Deno = js, d
		return t
	}
	script := []string{"javascript", "/mnt/skills/custom/a/scripts/x.ts", "one"}
	for name, c := range map[string]struct {
		template instance.Template
		argv     []string
		want     string // of the words, the script's own left out
	}{
		"bun":         {at("bun", nil), script, "bun"},
		"node, types": {at("node", nil), script, "node --experimental-strip-types --disable-warning=ExperimentalWarning"},
		"node":        {at("node", nil), []string{"javascript", "/a/x.mjs", "one"}, "node"},
		"deno":        {at("deno", nil), script, "deno " + strings.Join(denoOptions, " ") + " --allow-all"},
		"deno with permissions": {
			at("deno", &sandbox.DenoPermissions{Read: []string{"/mnt/user-data"}, Run: []string{"git"}}), script,
			"deno " + strings.Join(denoOptions, " ") +
				" --allow-read=/mnt/skills/custom/a,/mnt/code-api,/mnt/user-data/workspace/.skerry/results,/mnt/user-data/workspace/tool-results,/mnt/user-data --allow-net=localhost:9876,127.0.0.1:9876" +
				" --allow-env=MCP_RPC_ENDPOINT,MCP_BRIDGE_PORT,SKERRY_EXEC_TOKEN --allow-run=git",
		},
	} {
		got := scriptArgv(c.argv, c.template)
		if want := append(strings.Fields(c.want), c.argv[1:]...); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	first := scriptArgv(script, at("", nil))
	if first[0] != "sh" || !slices.Equal(first[3:], append([]string{"sh"}, script[1:]...)) || strings.Contains(first[2], "@") && strings.Contains(first[2], "@NODE@") {
		t.Errorf("the first that is there: %q", first)
	}
	own := []string{"python3", "/a/x.py"}
	if got := scriptArgv(own, at("deno", nil)); !slices.Equal(got, own) {
		t.Errorf("another language: %q", got)
	}
}
