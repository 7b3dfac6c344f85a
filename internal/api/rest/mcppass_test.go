package rest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// member returns a member of a JSON text, by its path.
func member(t *testing.T, text string, path ...any) string {
	t.Helper()
	raw := json.RawMessage(text)
	for _, p := range path {
		var err error
		switch p := p.(type) {
		case string:
			var o map[string]json.RawMessage
			err = json.Unmarshal(raw, &o)
			raw = o[p]
		case int:
			var a []json.RawMessage
			if err = json.Unmarshal(raw, &a); err == nil && p < len(a) {
				raw = a[p]
			}
		}
		if err != nil {
			t.Fatalf("%v in %s: %v", path, text, err)
		}
	}
	return string(raw)
}

// TestMCPPassesToolsOn: definitions and results come through as the server wrote them, but for the names.
func TestMCPPassesToolsOn(t *testing.T) {
	t.Parallel()
	eras(t, "ann", "/mcp/t1", func(t *testing.T, h *mcpHost, c *talk) {
		h.w.mode, h.w.noSkills, h.w.noCode = sandbox.ModeDirect, true, true
		list := c.ok("tools/list", "{}")
		_, read, _ := strings.Cut(list, `{"name":"fs__read"`)
		for _, want := range []string{`"title":"Read"`, `"x-order":1`, `"outputSchema":{"type":"object"}`, `{"readOnlyHint":true,"x":1}`, `"_meta":{"k":"v"}`} {
			if !strings.Contains(read, want) {
				t.Errorf("%s is missing in %s", want, list)
			}
		}
		res := c.ok("tools/call", `{"name":"fs__read","arguments":{"path":"x"}}`)
		if h.w.ref != (sandbox.ToolRef{Printed: "fs__read"}) || string(h.w.input) != `{"path":"x"}` {
			t.Errorf("called %+v with %s", h.w.ref, h.w.input)
		}
		if got := member(t, res, "structuredContent", "big"); got != "12345678901234567890" {
			t.Errorf("structured content: %s", res)
		}
		if got := member(t, res, "content", 1); !strings.Contains(got, `"AQI="`) {
			t.Errorf("image: %s", got)
		}
		for i, want := range map[int]string{2: `"skerry-mcp://fs/f:///a"`, 3: `"skerry-mcp://fs/f:///b"`} {
			if got := member(t, res, "content", i); !strings.Contains(got, want) {
				t.Errorf("block %d: %s, want %s", i, got, want)
			}
		}
		if got := member(t, res, "_meta", "own"); got != "1" {
			t.Errorf("metadata: %s", res)
		}
		if modern := strings.Contains(res, "resultType"); modern == c.legacy {
			t.Errorf("of the wrong era: %s", res)
		}
		if a := c.ask("tools/call", `{"name":"fs__none","arguments":{}}`); a.Error == nil || a.Error.Code != -32602 {
			t.Errorf("no such tool: %+v", a)
		}
		h.w.err = sandbox.Errorf(sandbox.Unavailable, "the MCP server is away")
		if res := c.ok("tools/call", `{"name":"fs__read","arguments":{}}`); !strings.Contains(res, `"isError":true`) || !strings.Contains(res, "is away") {
			t.Errorf("a failure: %s", res)
		}
	})
}

// TestMCPOneServer: /mcp/<thread>/<server> is that server under its own names, and nothing else.
func TestMCPOneServer(t *testing.T) {
	t.Parallel()
	eras(t, "ann", "/mcp/t1/odd%20name%2F", func(t *testing.T, h *mcpHost, c *talk) {
		if got := c.tools(); len(got) != 1 || got[0] != "x" {
			t.Errorf("tools %v", got)
		}
		res := c.ok("tools/call", `{"name":"x","arguments":{}}`)
		if h.w.ref != (sandbox.ToolRef{Server: "odd name/", Name: "x"}) || !strings.Contains(res, `"uri":"f:///a"`) {
			t.Errorf("%+v: %s", h.w.ref, res)
		}
		c.ok("tools/call", `{"name":"bash","arguments":{"command":"id"}}`)
		if h.w.ref.Name != "bash" || h.w.runs != 0 {
			t.Errorf("a tool of ours is in the way: %+v", h.w.ref)
		}
		if got := c.ok("resources/list", "{}"); member(t, got, "resources", 0, "uri") != `"f:///a"` || strings.Contains(got, "skill://") {
			t.Errorf("resources: %s", got)
		}
		c.ok("prompts/get", `{"name":"greet"}`)
		if h.w.asked.Server != "odd name/" || h.w.asked.Method != "prompts/get" || !strings.Contains(string(h.w.asked.Params), `"greet"`) {
			t.Errorf("asked %+v", h.w.asked)
		}
	})
}

// TestMCPNamesAreReversible: what a list shows can be asked for, and finds its server again.
func TestMCPNamesAreReversible(t *testing.T) {
	t.Parallel()
	eras(t, "ann", "/mcp/t1", func(t *testing.T, h *mcpHost, c *talk) {
		list := c.ok("resources/list", "{}")
		uri := member(t, list, "resources", 2, "uri") // after the skill and the other server's
		if uri != `"skerry-mcp://odd%20name%2F/f:///a"` || member(t, list, "resources", 2, "x") != "1" {
			t.Fatalf("resources: %s", list)
		}
		res := c.ok("resources/read", `{"uri":`+uri+`}`)
		if h.w.asked.Server != "odd name/" || member(t, string(h.w.asked.Params), "uri") != `"f:///a"` || member(t, res, "contents", 0, "uri") != uri {
			t.Errorf("asked %+v, got %s", h.w.asked, res)
		}
		template := member(t, c.ok("resources/templates/list", "{}"), "resourceTemplates", 0, "uriTemplate")
		if template != `"skerry-mcp://fs/f:///{p}"` {
			t.Errorf("template %s", template)
		}
		c.ok("completion/complete", `{"ref":{"type":"ref/resource","uri":`+template+`},"argument":{"name":"p","value":"a"}}`)
		if h.w.asked.Server != "fs" || member(t, string(h.w.asked.Params), "ref", "uri") != `"f:///{p}"` {
			t.Errorf("asked %s", h.w.asked.Params)
		}
		prompt := member(t, c.ok("prompts/list", "{}"), "prompts", 1, "name")
		res = c.ok("prompts/get", `{"name":`+prompt+`,"arguments":{"a":"b"}}`)
		if prompt != `"odd_name___greet"` || h.w.asked.Server != "odd name/" || member(t, string(h.w.asked.Params), "name") != `"greet"` || member(t, res, "messages", 0, "content", "uri") != uri {
			t.Errorf("prompt %s, asked %s, got %s", prompt, h.w.asked.Params, res)
		}
		for _, cursor := range []string{"9223372036854775807", "9223372036854775800", "1000000"} { // behind the end
			for _, list := range []string{"tools", "resources", "resourceTemplates", "prompts"} {
				method := map[string]string{"resourceTemplates": "resources/templates"}[list]
				if method == "" {
					method = list
				}
				if got := c.ok(method+"/list", `{"cursor":"`+cursor+`"}`); !strings.Contains(got, `"`+list+`":[]`) || strings.Contains(got, "nextCursor") {
					t.Errorf("%s after %s: %s", list, cursor, got)
				}
			}
		}
		for _, bad := range []string{"f:///a", "skerry-mcp://", "skerry-mcp://fs", "skerry-mcp://%zz/x", "skill://pdf/none"} {
			if a := c.ask("resources/read", `{"uri":"`+bad+`"}`); a.Error == nil || a.Error.Code != map[bool]int{true: -32002, false: -32602}[c.legacy] {
				t.Errorf("%s: %+v", bad, a)
			}
		}
		if a := c.ask("resources/read", `{"uri":"skerry-mcp://fs/gone"}`); a.Error == nil || a.Error.Message != "gone" || a.Error.Code != map[bool]int{true: -32002, false: -32602}[c.legacy] || string(a.Error.Data) != `{"uri":"u"}` {
			t.Errorf("the server's own error: %+v", a.Error)
		}
	})
}

func TestMCPSkills(t *testing.T) {
	t.Parallel()
	eras(t, "ann", "/mcp/t1", func(t *testing.T, _ *mcpHost, c *talk) {
		list := c.ok("skills/list", "{}")
		if member(t, list, "skills", 1, "uri") != `"skill://pdf/SKILL.md"` || member(t, list, "skills", 1, "resources", 0, "digest") != `"sha256:00"` {
			t.Errorf("%s", list)
		}
		for cursor, first := range map[string]string{"0 hidden": "pdf", "7 hidden": "pdf", "0 gone": "hidden", "1 gone": "pdf", "no cursor": "hidden"} {
			if rest := c.ok("skills/list", `{"cursor":"`+cursor+`"}`); member(t, rest, "skills", 0, "uri") != `"skill://`+first+`/SKILL.md"` {
				t.Errorf("behind %q: %s", cursor, rest)
			}
		}
		if got := c.ok("skills/get", `{"uri":"skill://pdf/SKILL.md"}`); member(t, got, "skill", "frontmatter", "name") != `"pdf"` {
			t.Errorf("%s", got)
		}
		for _, uri := range []string{"skill://none/SKILL.md", "skill://pdf/a/run.py", "skill://pdf", "file:///x", ""} {
			if a := c.ask("skills/get", `{"uri":"`+uri+`"}`); a.Error == nil || a.Error.Code != -32602 {
				t.Errorf("%s: %+v", uri, a)
			}
		}
		if got := c.ok("resources/read", `{"uri":"skill://pdf/SKILL.md"}`); member(t, got, "contents", 0, "text") != `"hi"` {
			t.Errorf("%s", got)
		}
		for call, want := range map[string]string{
			`{"name":"activate_skill","arguments":{"name":"pdf"}}`:                              `<skill_content name=\"pdf\">`,
			`{"name":"read_skill_file","arguments":{"skill":"pdf","path":"SKILL.md"}}`:          `"text":"hi"`,
			`{"name":"read_skill_file","arguments":{"skill":"pdf","path":"a/b/c.bin"}}`:         "use it in the sandbox: /mnt/skills/public/pdf/a/b/c.bin",
			`{"name":"read_skill_file","arguments":{"skill":"pdf","path":"../../etc/x"}}`:       "not_found",
			`{"name":"search_skills","arguments":{"query":"papers"}}`:                           "/mnt/skills/public/pdf/SKILL.md",
			`{"name":"activate_skill","arguments":{"name":"none"}}`:                             "not_found",
			`{"name":"run_skill","arguments":{"skill":"pdf","script":"a/run.py","args":["x"]}}`: `\"exec_id\":\"e1\"`,
		} {
			if got := strings.ReplaceAll(c.ok("tools/call", call), `\u003c`, "<"); !strings.Contains(strings.ReplaceAll(got, `\u003e`, ">"), want) {
				t.Errorf("%s: %s", call, got)
			}
		}
	})
}

func TestMCPSkillNamesAreAnEnum(t *testing.T) {
	t.Parallel()
	eras(t, "ann", "/mcp/t1", func(t *testing.T, _ *mcpHost, c *talk) {
		var list struct {
			Tools []struct {
				Name        string
				InputSchema struct {
					Required   []string
					Properties map[string]struct{ Enum []string }
				}
			}
		}
		if err := json.Unmarshal([]byte(c.ok("tools/list", "{}")), &list); err != nil {
			t.Fatal(err)
		}
		seen := 0
		for _, tool := range list.Tools {
			parameter, ok := map[string]string{"activate_skill": "name", "read_skill_file": "skill"}[tool.Name]
			if !ok {
				continue
			}
			seen++
			if got := tool.InputSchema.Properties[parameter].Enum; !slices.Equal(got, []string{"pdf"}) || !slices.Contains(tool.InputSchema.Required, parameter) {
				t.Errorf("%s: %v", tool.Name, got)
			}
		}
		if seen != 2 {
			t.Errorf("%d tools", seen)
		}
	})
}

func TestMCPDirectories(t *testing.T) {
	t.Parallel()
	eras(t, "ann", "/mcp/t1", func(t *testing.T, _ *mcpHost, c *talk) {
		for uri, want := range map[string]string{
			"skill://pdf":    "skill://pdf/SKILL.md text/markdown, skill://pdf/a inode/directory",
			"skill://pdf/a":  "skill://pdf/a/b inode/directory, skill://pdf/a/run.py ",
			"skill://pdf/a/": "skill://pdf/a/b inode/directory, skill://pdf/a/run.py ",
		} {
			var list struct {
				Resources []struct{ URI, MIMEType string }
			}
			if err := json.Unmarshal([]byte(c.ok("resources/directory/read", `{"uri":"`+uri+`"}`)), &list); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range list.Resources {
				got = append(got, r.URI+" "+r.MIMEType)
			}
			if !strings.HasPrefix(strings.Join(got, ", "), want) {
				t.Errorf("%s: %v", uri, got)
			}
		}
		for _, uri := range []string{"skill://pdf/SKILL.md", "skill://pdf/x", "skill://none", "skill://pdf/..", "file:///etc", ""} {
			if a := c.ask("resources/directory/read", `{"uri":"`+uri+`"}`); a.Error == nil || a.Error.Code != -32602 {
				t.Errorf("%s: %+v", uri, a)
			}
		}
	})
}

// listen reads the notifications of a stream.
func (c *talk) listen(ctx context.Context, method, body string) <-chan string {
	c.h.t.Helper()
	res := c.request(ctx, method, body)
	if res.StatusCode != 200 {
		c.h.t.Fatalf("stream: %d", res.StatusCode)
	}
	heard := make(chan string, 100)
	go func() {
		defer close(heard)
		defer res.Body.Close() //nolint:errcheck // test
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			var n struct{ Method string }
			data, _ := strings.CutPrefix(lines.Text(), "data: ")
			if json.Unmarshal([]byte(data), &n) == nil && n.Method != "" {
				heard <- n.Method
			}
		}
	}()
	return heard
}

func wait[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(10 * time.Second):
		t.Errorf("not within 10 s: %s", what)
	}
	return v
}

// TestMCPChanges: a client that listens hears of other tools and of resources that it watches, until it
// stops.
func TestMCPChanges(t *testing.T) {
	t.Parallel()
	eras(t, "ann", "/mcp/t1", func(t *testing.T, h *mcpHost, c *talk) {
		h.w.watching = make(chan watching, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		const uri = "skerry-mcp://fs/f:///a"
		var heard <-chan string
		if c.legacy {
			heard = c.listen(ctx, http.MethodGet, "")
			c.ok("resources/subscribe", `{"uri":"`+uri+`"}`)
			c.ok("resources/subscribe", `{"uri":"`+uri+`"}`) // again: still one watch
			if a := c.ask("resources/subscribe", `{"uri":"f:///a"}`); a.Error == nil {
				t.Error("a URI that is nobody's can be watched")
			}
			if a := c.ask("resources/subscribe", `{"uri":"skerry-mcp://none/x"}`); a.Error == nil {
				t.Error("a server that is not there can be watched")
			}
		} else {
			heard = c.listen(ctx, http.MethodPost, c.message(3, "subscriptions/listen", `{"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["`+uri+`"]}}`))
			if got := wait(t, "an acknowledgement", heard); got != "notifications/subscriptions/acknowledged" {
				t.Fatalf("heard %s", got)
			}
		}
		watch := wait(t, "a watch", h.w.watching)
		if watch.uri != "f:///a" {
			t.Errorf("watches %q", watch.uri)
		}
		watch.changed()
		if got := wait(t, "a change of a resource", heard); got != "notifications/resources/updated" {
			t.Errorf("heard %s", got)
		}
		h.w.change()
		if got := wait(t, "a change of tools", heard); got != "notifications/tools/list_changed" {
			t.Errorf("heard %s", got)
		}
		h.w.setActive(true)
		if got := wait(t, "an activation", heard); got != "notifications/tools/list_changed" {
			t.Errorf("an activation: %v", got)
		}
		h.w.changeOf("skills")
		got := []string{wait(t, "a change of skills", heard), wait(t, "their resources", heard)}
		if slices.Sort(got); !slices.Equal(got, []string{"notifications/resources/list_changed", "notifications/tools/list_changed"}) {
			t.Errorf("heard %q", got)
		}
		for _, kind := range []sandbox.UpstreamKind{sandbox.UpstreamPrompts, sandbox.UpstreamResources} {
			h.w.changeOf(kind)
			if got := wait(t, "a change of "+string(kind), heard); got != "notifications/"+string(kind)+"/list_changed" {
				t.Errorf("heard %s", got)
			}
			if list := c.ok(string(kind)+"/list", `{}`); strings.Contains(list, "skerry.changed") {
				t.Errorf("what announces is shown: %s", list)
			}
		}
		if c.legacy {
			c.ok("resources/unsubscribe", `{"uri":"`+uri+`"}`)
		} else {
			cancel()
		}
		wait(t, "the end of the watch", watch.ctx.Done())
	})
}

// TestMCPListsWithoutParams: a list may be asked for without params, as the official TypeScript client does.
func TestMCPListsWithoutParams(t *testing.T) {
	t.Parallel()
	eras(t, "ann", "/mcp/t1", func(t *testing.T, _ *mcpHost, c *talk) {
		if !c.legacy {
			return // since 2026-07-28 every request has params
		}
		for _, method := range []string{"tools/list", "resources/list", "resources/templates/list", "prompts/list"} {
			a := c.read(c.post(t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q}`, method)))
			if a.Error != nil || a.Result == nil {
				t.Errorf("%s: HTTP %d, %+v", method, c.lastHTTP, a.Error)
			}
		}
	})
}
