package resultfile

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// disk keeps what is saved, and refuses a second file of a name as a thread's files do.
type disk map[string]string

func (d disk) save(_ context.Context, _ sandbox.Thread, path string, content []byte) error {
	if _, there := d[path]; there {
		return sandbox.Errorf(sandbox.ToolFailed, "%s exists", path)
	}
	d[path] = string(content)
	return nil
}

func move(t *testing.T, d disk, raw string) (sandbox.ToolResult, []sandbox.ResultFile, error) {
	t.Helper()
	return Move(t.Context(), sandbox.Thread{ID: "t"}, sandbox.ToolResult{Result: json.RawMessage(`"as it was"`), Raw: json.RawMessage(raw)}, d.save)
}

func blob(name, content string) string {
	return fmt.Sprintf(`{"type":"resource","resource":{"uri":%q,"mimeType":"text/csv","blob":%q}}`, Prefix+name, base64.StdEncoding.EncodeToString([]byte(content)))
}

// TestMove: a resource below the prefix becomes a file, and a link takes its place. Other resources stay.
func TestMove(t *testing.T) {
	t.Parallel()
	d := disk{}
	other := `{"type":"resource","resource":{"uri":"file:///etc/motd","blob":"eA=="}}`
	text := `{"type":"resource","resource":{"uri":"` + strings.ReplaceAll(Prefix, "/", `\/`) + `b.txt","text":"hi"}}`
	res, files, err := move(t, d, `{"content":[{"type":"text","text":"two"},`+blob("a.csv", "1,2\n")+`,`+text+`,`+other+`],"_meta":{"a":1}}`)
	if err != nil || len(files) != 2 || d[Dir+"/a.csv"] != "1,2\n" || d[Dir+"/b.txt"] != "hi" || len(d) != 2 {
		t.Fatalf("%v %v %v", err, files, d)
	}
	want := `{"type":"resource_link","uri":"` + Prefix + `a.csv","name":"a.csv","mimeType":"text/csv","size":4}`
	for _, got := range []string{string(res.Raw), string(res.Result)} {
		if !strings.Contains(got, want) || strings.Contains(got, "MSwyCg") || !strings.Contains(got, "/etc/motd") || !strings.Contains(got, `"two"`) {
			t.Errorf("%s", got)
		}
	}
	if !strings.Contains(string(res.Raw), `"_meta":{"a":1}`) {
		t.Errorf("%s", res.Raw)
	}
}

// TestMoveStructured: what code gets of a result with structured content stays as the tool wrote it.
func TestMoveStructured(t *testing.T) {
	t.Parallel()
	d := disk{}
	res, files, err := move(t, d, `{"content":[`+blob("a.csv", "x")+`],"structuredContent":{"path":"p"}}`)
	if err != nil || len(files) != 1 || string(res.Result) != `"as it was"` || !strings.Contains(string(res.Raw), `"structuredContent":{"path":"p"}`) {
		t.Errorf("%v %v %s %s", err, files, res.Result, res.Raw)
	}
}

// TestMoveHostile: a name that is no plain name, a second file of a name, wrong base64 and too many files are the
// tool's failure, and nothing lies outside the folder.
func TestMoveHostile(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", ".", "..", ".bashrc", "a/b", "../x", "a b", "%2e%2e", "a\x00", strings.Repeat("a", 129), "ä"} {
		d := disk{}
		raw, _ := json.Marshal(map[string]any{"content": []any{map[string]any{"type": "resource", "resource": map[string]any{"uri": Prefix + name, "blob": "eA=="}}}})
		if _, _, err := move(t, d, string(raw)); sandbox.KindOf(err) != sandbox.ToolFailed || len(d) != 0 {
			t.Errorf("%q: %v %v", name, err, d)
		}
	}
	many := strings.Repeat(blob("a", "x")+",", maxFiles) + blob("b", "x")
	for what, content := range map[string]string{
		"base64":  `{"type":"resource","resource":{"uri":"` + Prefix + `a","blob":"?"}}`,
		"nothing": `{"type":"resource","resource":{"uri":"` + Prefix + `a"}}`,
		"many":    many,
	} {
		d := disk{}
		if _, _, err := move(t, d, `{"content":[`+content+`]}`); sandbox.KindOf(err) != sandbox.ToolFailed || len(d) != 0 {
			t.Errorf("%s: %v %v", what, err, d)
		}
	}
	d := disk{}
	if _, files, err := move(t, d, `{"content":[`+blob("a", "1")+`,`+blob("a", "2")+`]}`); sandbox.KindOf(err) != sandbox.ToolFailed || len(files) != 1 || d[Dir+"/a"] != "1" {
		t.Errorf("twice: %v %v %v", err, files, d)
	}
	res := sandbox.ToolResult{IsError: true, Raw: json.RawMessage(`{"content":[` + blob("a", "x") + `],"isError":true}`)}
	if _, files, err := Move(t.Context(), sandbox.Thread{}, res, d.save); err != nil || files != nil {
		t.Errorf("a failed call has files: %v %v", err, files)
	}
}
