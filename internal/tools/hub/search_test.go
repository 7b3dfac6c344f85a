package hub

import (
	"context"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/codeapi"
	"github.com/skerry-sandbox/skerry/internal/tools/codeapi/wrapperpath"
)

func TestSearch(t *testing.T) {
	t.Parallel()
	r := open(t, withServers(`"x y":`+testServer+`,"z":`+testServer))
	search := func(q sandbox.ToolQuery) sandbox.ToolSearch {
		t.Helper()
		res, err := r.Catalog.Search(context.Background(), alice, q)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	all := search(sandbox.ToolQuery{})
	if all.MatchCount != 24 || all.Showing != 15 || len(all.Tools) != 15 || all.Tools[0].Name != "x_y__blocks" {
		t.Errorf("%d of %d, first %+v", all.Showing, all.MatchCount, all.Tools[0])
	}
	one := search(sandbox.ToolQuery{Query: "what should it say: a message to ECHO", Server: "z", Detail: "full"})
	if one.Showing == 0 || one.Tools[0].Name != "z__echo" || one.Tools[0].Server != "z" || len(one.Tools[0].Parameters) == 0 || one.Tools[0].WrapperPath == "" || one.ServerFilter != "z" || !slices.Contains(one.Tools[0].Why, "echo") {
		t.Errorf("%+v", one)
	}
	for _, f := range search(sandbox.ToolQuery{Query: "flooding", Server: "x_y", Detail: "name"}).Tools {
		if f.Server != "x y" || f.Description != "" || f.Parameters != nil || f.Why != nil {
			t.Errorf("%+v", f)
		}
	}
	if none := search(sandbox.ToolQuery{Query: "qqqq"}); none.MatchCount != 0 || none.Tools == nil {
		t.Errorf("%+v", none)
	}
	few := search(sandbox.ToolQuery{Detail: "full"})
	if few.MatchCount != 24 || few.Showing != 4 || len(few.Also) != 11 || few.Tools[0].Output != nil {
		t.Errorf("%d of %d, and %q", few.Showing, few.MatchCount, few.Also)
	}
	for _, wrong := range []sandbox.ToolQuery{{Detail: "all"}, {Limit: 16}, {Limit: -1}} {
		if _, err := r.Catalog.Search(context.Background(), alice, wrong); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}

// TestWrappersOfTwins: names that differ in case share the file that codeapi makes.
func TestWrappersOfTwins(t *testing.T) {
	t.Parallel()
	var tools []sandbox.Tool
	for _, server := range []string{"Files", "files", "x"} {
		for _, name := range []string{"INDEX", "List", "list", "read"} {
			tools = append(tools, sandbox.Tool{Server: server, Name: name})
		}
	}
	wrapperpath.Place(tools)
	tree, err := codeapi.Generate(sandbox.ToolSet{Tools: tools})
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]bool{}
	for _, tool := range tools {
		path := strings.TrimPrefix(tool.WrapperPath, sandbox.CodeAPIDir+"/")
		if tree[path] == nil {
			t.Errorf("%s: no %s", tool.Name, path)
		}
		paths[path] = true
	}
	if len(paths) != 6 {
		t.Errorf("%v", paths)
	}
}

// TestConfiguredSearch: keywords find a tool, and its summary, cut at 200 characters, stands for its
// description. A search finds a deferred tool, too.
func TestConfiguredSearch(t *testing.T) {
	t.Parallel()
	long := strings.TrimSpace(strings.Repeat("zebra ", 80))
	r := open(t, withServers(`"x":{"command":"%BIN%","args":["test-server"],"tools":{"echo":{"summary":"Says it again.","keywords":["parrot"]},"json":{"disclosure":"deferred","summary":"`+long+`"}}}`))
	deferred, err := r.Catalog.Search(context.Background(), alice, sandbox.ToolQuery{Query: "zebra"})
	if err != nil || deferred.Showing != 1 || deferred.Tools[0].ShortName != "json" || utf8.RuneCountInString(deferred.Tools[0].Description) > 200 || !strings.HasSuffix(deferred.Tools[0].Description, "zebra…") {
		t.Errorf("%v %+v", err, deferred)
	}
	for _, query := range []string{"parrots", "what says it again"} {
		found, err := r.Catalog.Search(context.Background(), alice, sandbox.ToolQuery{Query: query})
		if err != nil || found.Showing == 0 || found.Tools[0].ShortName != "echo" || found.Tools[0].Description != "Says it again." {
			t.Errorf("%q: %v %+v", query, err, found)
		}
	}
	full, err := r.Catalog.Search(context.Background(), alice, sandbox.ToolQuery{Query: "parrot", Detail: "full"})
	if err != nil || full.Tools[0].Description == "Says it again." {
		t.Errorf("%v %+v", err, full)
	}
}
