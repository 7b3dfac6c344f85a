package mcphub

import (
	"context"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestSearch(t *testing.T) {
	r := open(t, withServers(`"x y":`+testServer+`,"z":`+testServer))
	search := func(q sandbox.ToolQuery) sandbox.ToolSearch {
		t.Helper()
		res, err := r.Search(context.Background(), alice, q)
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
	if _, err := r.Search(context.Background(), alice, sandbox.ToolQuery{Detail: "all"}); sandbox.KindOf(err) != sandbox.Invalid {
		t.Error(err)
	}
}

func TestShorten(t *testing.T) {
	long := strings.Repeat("word ", 100)
	if s := shorten(long, 200); utf8.RuneCountInString(s) > 200 || !strings.HasSuffix(s, "word…") {
		t.Errorf("%q", s)
	}
	if s := shorten(strings.Repeat("ä", 300), 200); utf8.RuneCountInString(s) != 200 {
		t.Errorf("%d", utf8.RuneCountInString(s))
	}
}
