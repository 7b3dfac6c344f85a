package hub

import (
	"context"
	"slices"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestToolConfig: what the configuration says of a tool is with the tool; a hidden one is nowhere.
func TestToolConfig(t *testing.T) {
	t.Parallel()
	r := open(t, withServers(`"x":{"command":"%BIN%","args":["test-server"],"tools":{
		"echo":{"disclosure":"always","summary":"  says \n it again ","keywords":["parrot","repeat  after"]},
		"json":{"disclosure":"deferred"},
		"fail":{"disclosure":"hidden"},
		"not there":{"disclosure":"hidden"}}}`))
	set, err := r.Catalog.Tools(context.Background(), alice)
	if err != nil || len(set.Tools) != 11 {
		t.Fatalf("%v: %d tools", err, len(set.Tools))
	}
	byName := map[string]sandbox.Tool{}
	for _, tool := range set.Tools {
		byName[tool.Name] = tool
	}
	e := byName["echo"]
	if e.Disclosure != sandbox.DiscloseAlways || e.Summary != "says it again" || !slices.Equal(e.Keywords, []string{"parrot", "repeat after"}) {
		t.Errorf("%+v", e)
	}
	if d := byName["json"].Disclosure; d != sandbox.DiscloseDeferred {
		t.Errorf("%q", d)
	}
	if b := byName["blocks"]; b.Disclosure != "" || b.Summary != "" || b.Keywords != nil {
		t.Errorf("%+v", b)
	}
	r.fails("x__fail", "", sandbox.NotFound, "x__fail")
	if _, err := r.Catalog.Call(context.Background(), alice, sandbox.Tool{Server: "x", Name: "fail"}, nil); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("a hidden tool is called: %v", err)
	}
	found, err := r.Catalog.Search(context.Background(), alice, sandbox.ToolQuery{Query: "fail"})
	if err != nil || slices.ContainsFunc(found.Tools, func(f sandbox.ToolFound) bool { return f.ShortName == "fail" }) {
		t.Errorf("%v %+v", err, found)
	}
	if tools, err := r.Servers.ServerTools(context.Background(), sandbox.Caller{Owner: alice.Owner}, "x"); err != nil || len(tools) != 11 {
		t.Errorf("%v: %d tools for administration", err, len(tools))
	}
	before := set.Hash
	r.write(withServers(`"x":{"command":"%BIN%","args":["test-server"]}`))
	if set, err = r.Catalog.Tools(context.Background(), alice); err != nil || len(set.Tools) != 12 || set.Hash == before {
		t.Errorf("%v: %d tools", err, len(set.Tools))
	}
}
