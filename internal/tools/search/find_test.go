package search

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWords(t *testing.T) {
	for text, want := range map[string]string{
		"read_text_file":             "read text file",
		"readHTMLFile":               "read html file",
		"S3 base64-encoded":          "s3 base64 encod",
		"Listing the directories":    "list directori",
		"creates, created, creating": "creat creat creat",
		"get-status":                 "get status",
		"what is the":                "what is the", // nothing else is there
		"the repository's files":     "repositori file",
		"Größe ändern":               "größe ändern",
		"搜索文件":                       "搜索 索文 文件",
		"pdf文件":                      "pdf 文件",
		"":                           "",
		" '’' ":                      "",
	} {
		if got := strings.Join(stems(text, stem), " "); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

var few = []sandbox.Tool{
	{Server: "files", Name: "write_file", Description: "Write a file. Parent folders must exist.", Input: json.RawMessage(`{"properties":{"targetPath":{"type":"string","description":"where to"}}}`)},
	{Server: "files", Name: "delete_file", Description: "Delete a file."},
	{Server: "web", Name: "screenshot", Description: "Take a picture of a page.", Input: json.RawMessage(`{"properties":{"opts":{"anyOf":[{"type":"null"},{"type":"object","properties":{"shape":{"items":{"properties":{"fullHeight":{"description":"scrolls all the way"}}}}}}]}}}`)},
	{Server: "web", Name: "zap", Description: "See the manual.", Summary: "Reboots the thing.", Keywords: []string{"power cycle", "redButton"}},
	{Server: "web", Name: "open", Description: "Show a page, in a file too."},
}

func names(hits []Hit) string {
	var list []string
	for _, h := range hits {
		list = append(list, few[h.Tool].Name)
	}
	return strings.Join(list, " ")
}

func TestFind(t *testing.T) {
	ix := New(few)
	for query, want := range map[string]string{
		"write files":     "write_file delete_file open",
		"WRITEFILE":       "write_file",  // the beginning of it is a word
		"target path":     "write_file",  // a parameter
		"full height":     "screenshot",  // one within another
		"scrolling":       "screenshot",  // what is said of it
		"erase something": "delete_file", // the same kind of action
		"screen":          "screenshot",  // the beginning of a word
		"qqqq":            "",
		"":                "",
		"\xff\xfe":        "",
		"web":             "screenshot zap open",
		"cycling power":   "zap",
		"the button":      "zap", // a keyword
		"rebooting":       "zap", // the summary
	} {
		if hits, found := ix.Find(query, 15, nil); names(hits) != want || found != len(hits) {
			t.Errorf("%q: %q of %d, want %q", query, names(hits), found, want)
		}
	}
	hits, found := ix.Find("file", 1, nil)
	if len(hits) != 1 || found != 3 {
		t.Errorf("%v of %d, want one of 3", hits, found)
	}
	hits, found = ix.Find("file", 15, func(t sandbox.Tool) bool { return t.Server == "web" })
	if names(hits) != "open" || found != 1 {
		t.Errorf("%q of %d: the filter is not heeded", names(hits), found)
	}
	if hits, found = New(nil).Find("file", 15, nil); hits != nil || found != 0 {
		t.Errorf("%v of %d from nothing", hits, found)
	}
}

func TestWhy(t *testing.T) {
	hits, _ := New(few).Find("Please ERASE the files", 1, nil)
	if want := []string{"erase (delet)", "files"}; len(hits) != 1 || !reflect.DeepEqual(hits[0].Why, want) {
		t.Errorf("%+v, want %q", hits, want)
	}
}

// TestLongQuery: a query is cut, not refused, and costs no more for being long.
func TestLongQuery(t *testing.T) {
	ix := New(few)
	if hits, _ := ix.Find("screenshot "+strings.Repeat("ä", maxQuery)+" file", 15, nil); names(hits) != "screenshot" {
		t.Errorf("%q", names(hits))
	}
}

// many returns n tools, made from the descriptions and schemas of real ones.
func many(t testing.TB, n int) []sandbox.Tool {
	real := npmTools(t)
	tools := make([]sandbox.Tool, n)
	for i := range tools {
		tools[i] = real[i%len(real)]
		tools[i].Server += fmt.Sprint(i / len(real))
	}
	return tools
}

const (
	usual = "please read the log of a container that runs in the namespace and say which errors it has"
	worst = "get list create update delete page browser file name type text id url query data user string optional default value number object array use return given specific path content search result request set time all new"
)

func TestConcurrentFinds(t *testing.T) {
	ix := New(many(t, 500))
	want, _ := ix.Find(usual, 15, nil)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				if got, _ := ix.Find(usual, 15, nil); !reflect.DeepEqual(got, want) {
					t.Error("another answer")
				}
			}
		})
	}
	wg.Wait()
}

func FuzzFind(f *testing.F) {
	f.Add("write files", "n", "d", `{"properties":{"a":{"items":{}}}}`)
	f.Fuzz(func(t *testing.T, query, name, description, input string) {
		ix := New([]sandbox.Tool{{Server: "s", Name: name, Description: description, Input: json.RawMessage(input)}, few[0]})
		for _, h := range func() []Hit { h, _ := ix.Find(query, 15, nil); return h }() {
			if len(h.Why) == 0 || !(h.Score > 0) {
				t.Errorf("found without a reason: %+v", h)
			}
		}
	})
}

func BenchmarkFind(b *testing.B) {
	ix := New(many(b, 10_000))
	for name, query := range map[string]string{"usual": usual, "worst": worst} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ix.Find(query, 15, nil)
			}
		})
	}
}

func BenchmarkNew(b *testing.B) {
	tools := many(b, 10_000)
	for b.Loop() {
		New(tools)
	}
}
