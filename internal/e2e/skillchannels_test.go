package e2e

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	skerry "github.com/skerry-sandbox/skerry/sdk/go"
	"github.com/skerry-sandbox/skerry/sdk/go/packs"
)

type lineText struct {
	Text string `json:"text"`
}

type lineCount struct {
	Lines  int    `json:"lines"`
	Thread string `json:"thread"`
}

// counter is a pack with a tool that counts lines, and one that waits for its end and tells of it.
func counter(t *testing.T, name string) (p *packs.Pack, ended chan error) {
	t.Helper()
	p, ended = packs.New(name, "1.0.0"), make(chan error, 10)
	must(t, packs.Tool(p, "count-lines", "Counts quokka lines", func(ctx context.Context, in lineText) (lineCount, error) {
		if in.Text == "" {
			return lineCount{}, errors.New("there is no text to count")
		}
		return lineCount{strings.Count(in.Text, "\n") + 1, packs.CallerOf(ctx).Thread}, nil
	}))
	must(t, packs.Tool(p, "wait", "Waits", func(ctx context.Context, _ struct{}) (string, error) {
		ended <- nil
		<-ctx.Done()
		ended <- ctx.Err()
		return "", ctx.Err()
	}))
	return p, ended
}

func quiet(s *server) packs.Server {
	return packs.Server{URL: s.url, Drain: time.Second, Log: slog.New(slog.DiscardHandler)}
}

func review(name string) skerry.VirtualSkill {
	return skerry.VirtualSkill{Name: name, Description: "Reviews code", Body: "Count the lines first."}
}

// attach gives a thread the skill with the tools of counter.
func (s *server) attach(thread, name string) (a *packs.AttachedSkill, ended chan error) {
	s.t.Helper()
	p, ended := counter(s.t, name)
	a, err := packs.AttachSkill(context.Background(), skerry.New(s.url, skerry.Options{Key: s.key}).Thread(thread), review(name), p, quiet(s))
	must(s.t, err)
	s.t.Cleanup(func() { _ = a.Close() })
	return a, ended
}

// skillTool calls a tool of a skill.
func (s *server) skillTool(thread, skill, tool string, input any) answer {
	s.t.Helper()
	return s.do("POST", "/api/threads/"+thread+"/skills/"+skill+"/tools/"+tool, input)
}

func (s *server) activate(thread, skill string) answer {
	s.t.Helper()
	return s.do("POST", "/api/threads/"+thread+"/skills/"+skill+"/activate", nil)
}

// TestSkillChannels: a Go program gives a skill of one thread its functions as tools. They are on no list. Once the skill is
// active they can be called over HTTP, by /mcp and by typed wrappers from code. Policy and the audit log count for them.
// Another thread of the same user has nothing of it, and what is wrong with a call is named.
func TestSkillChannels(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	s.acquire("t", "direct")
	s.acquire("other", "direct")
	a, _ := s.attach("t", "code-review")
	input := map[string]any{"text": "a\nb"}

	session := s.mcpClient("/mcp/t", nil)
	if a := s.skillTool("t", "code-review", "count-lines", input); a.code() != "conflict" || !strings.Contains(string(a.body), "activate_skill") {
		t.Errorf("before it is active: %d %s", a.status, a.body)
	}
	s.onNoList(session)
	active := s.activate("t", "code-review")
	for _, want := range []string{"call_skill_tool", "count-lines", `"input_schema":{`, "./skills/code-review", "Count the lines first."} {
		if !strings.Contains(string(active.body), want) {
			t.Errorf("activation does not say %q: %s", want, active.body)
		}
	}
	s.onNoList(session)
	if a := s.skillTool("t", "code-review", "count-lines", input); a.status != 200 || !strings.Contains(string(a.body), `"result":{"lines":2,"thread":"t"}`) {
		t.Errorf("HTTP: %d %s", a.status, a.body)
	}
	if a := s.skillTool("t", "code-review", "count-lines", lineText{}); a.status != 200 || !strings.Contains(string(a.body), "there is no text to count") || !strings.Contains(string(a.body), `"is_error":true`) {
		t.Errorf("an error of the handler: %d %s", a.status, a.body)
	}
	for tool, want := range map[string]string{"count-lines": "invalid", "nothing": "not_found"} {
		if a := s.skillTool("t", "code-review", tool, map[string]any{"text": 5}); a.code() != want {
			t.Errorf("%s with wrong arguments: %d %s", tool, a.status, a.body)
		}
	}
	res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "call_skill_tool", Arguments: map[string]any{"skill": "code-review", "tool": "count-lines", "input": input}})
	must(t, err)
	if structured, _ := res.StructuredContent.(map[string]any); res.IsError || structured["lines"] != 2.0 {
		t.Errorf("/mcp: %+v", res)
	}
	for language, code := range map[string]string{
		"python":     "from skills.code_review import count_lines\nprint(count_lines(text='a\\nb\\nc')['lines'])",
		"typescript": "import { countLines } from './skills/code-review';\nconst n = await countLines({ text: 'a\\nb\\nc' });\nconsole.log(n.lines);",
	} {
		if r := s.run("t", "execute_code", map[string]any{"language": language, "code": code}); r.Stdout != "3\n" {
			t.Errorf("%s: %+v", language, r)
		}
	}
	for name, want := range map[string]string{"code-review": "conflict", "another": "one name"} {
		p, _ := counter(t, "code-review")
		if _, err := packs.AttachSkill(t.Context(), skerry.New(s.url, skerry.Options{}).Thread("t"), review(name), p, quiet(s)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a second program attaches %s: %v", name, err)
		}
	}
	s.skillOfOther(input)
	s.skillOnRecord(a.Added.Channel.Key, input)

	if a := s.do("POST", "/api/threads/t/skills", map[string]any{"name": "Code--Review", "description": "x", "channel": true}); a.code() != "invalid" || !strings.Contains(string(a.body), "name") {
		t.Errorf("a name that is no pack's: %d %s", a.status, a.body)
	}
	must(t, a.Close())
	if a := s.skillTool("t", "code-review", "count-lines", input); a.code() != "not_found" {
		t.Errorf("after it was removed: %d %s", a.status, a.body)
	}
	if r := s.run("t", "execute_code", map[string]any{"language": "bash", "code": "ls /mnt/code-api/skills"}); r.Stdout != "README.md\n" {
		t.Errorf("wrappers are left: %+v", r)
	}
}

// onNoList checks that nothing tells of the tools of a skill but activation.
func (s *server) onNoList(session *mcp.ClientSession) {
	t := s.t
	t.Helper()
	names := toolNames(t, session)
	if !slices.Contains(names, "call_skill_tool") {
		t.Errorf("/mcp has no call_skill_tool: %v", names)
	}
	for _, path := range []string{"tools?query=quokka+lines&detail=full", "servers", "prompt", "skills", "skills?query=quokka"} {
		a := s.do("GET", "/api/threads/t/"+path, nil)
		if strings.Contains(string(a.body), "count-lines") || strings.Contains(string(a.body), "Counts quokka") {
			t.Errorf("%s tells of the tools: %s", path, a.body)
		}
		if path == "prompt" && !strings.Contains(string(a.body), `"name":"call_skill_tool"`) {
			t.Errorf("the prompt has no call_skill_tool: %s", a.body)
		}
	}
	for _, name := range names {
		if strings.Contains(name, "count") {
			t.Errorf("/mcp lists %s", name)
		}
	}
	if a := s.do("GET", "/api/packs", nil); strings.Contains(string(a.body), "code-review") {
		t.Errorf("it is a pack for all: %s", a.body)
	}
}

// skillOfOther checks that another thread of the same user has nothing of the skill.
func (s *server) skillOfOther(input any) {
	t := s.t
	t.Helper()
	if a := s.skillTool("other", "code-review", "count-lines", input); a.code() != "not_found" {
		t.Errorf("another thread calls it: %d %s", a.status, a.body)
	}
	call := map[string]any{"server": "skill/code-review", "tool": "count-lines", "input": input}
	if a := s.do("POST", "/api/threads/other/tools/call", call); a.code() != "not_found" {
		t.Errorf("another thread calls it as a tool: %d %s", a.status, a.body)
	}
	if a := s.activate("other", "code-review"); a.code() != "not_found" {
		t.Errorf("another thread activates it: %d %s", a.status, a.body)
	}
	if a := s.do("GET", "/api/threads/other/prompt", nil); strings.Contains(string(a.body), "call_skill_tool") {
		t.Errorf("another thread is told of it: %s", a.body)
	}
	code := map[string]any{"language": "python", "code": "from helpers.call_mcp_tool import call_mcp_tool\ntry:\n    call_mcp_tool('skill/code-review/count-lines', {'text': 'x'})\nexcept Exception as e:\n    print('no:', e)"}
	if r := s.run("other", "execute_code", code); !strings.HasPrefix(r.Stdout, "no:") {
		t.Errorf("code of another thread calls it: %+v", r)
	}
}

// skillOnRecord checks the rules and records of calls, and that the key is in none, and good for nothing else.
func (s *server) skillOnRecord(key string, input any) {
	t := s.t
	t.Helper()
	put := s.do("PUT", "/api/policy", map[string]any{"text": "version: 1\ndefault: allow\nrules:\n- {id: no-counting, effect: deny, match: {server: skill/code-*, tool: count-lines}}\n"})
	if put.status != 200 {
		t.Fatalf("%d %s", put.status, put.body)
	}
	if a := s.skillTool("t", "code-review", "count-lines", input); a.status < 400 {
		t.Errorf("the policy denies it: %d %s", a.status, a.body)
	}
	s.do("PUT", "/api/policy", map[string]any{"text": "version: 1\ndefault: allow\nrules:\n- {id: ask, effect: require_approval, match: {server: \"skill/*\"}}\n"})
	answered := make(chan answer, 1)
	go func() {
		a, _ := s.request("POST", "/api/threads/t/skills/code-review/tools/count-lines", input)
		answered <- a
	}()
	s.decide(s.undecided("t").ID, "approve", "")
	if a := <-answered; a.status != 200 || !strings.Contains(string(a.body), `"lines":2`) {
		t.Errorf("an approved call: %d %s", a.status, a.body)
	}
	s.do("PUT", "/api/policy", map[string]any{"text": "version: 1\ndefault: allow\n"})
	attempts, results := s.records("action=tool_call&thread=t", "attempt"), s.records("action=tool_call&thread=t", "result")
	if len(attempts) < 5 || len(attempts) != len(results) {
		t.Errorf("%d attempts and %d results are recorded", len(attempts), len(results))
	}
	if there := s.records("action=pack&thread=t", "result"); len(there) == 0 || there[0]["user"] != "local" {
		t.Errorf("the record has no stream of the thread: %v", there)
	}
	for _, path := range []string{"/api/audit?limit=1000", "/api/threads/t", "/api/threads", "/api/threads/t/skills", "/api/packs"} {
		a := s.do("GET", path, nil)
		if strings.Contains(string(a.body), key) || strings.Contains(string(a.body), `"channels"`) || strings.Contains(string(a.body), `"hash":"`+key) {
			t.Errorf("%s has the key, or what the record keeps of it", path)
		}
	}
	if strings.Contains(s.log.String(), key) {
		t.Error("the log has the key")
	}
	other := *s
	other.key = key
	for _, path := range []string{"/api/threads", "/api/threads/t/tools", "/api/packs", "/api/skills", "/mcp/t"} {
		if a := other.do("GET", path, nil); a.status != 401 {
			t.Errorf("the key is good for GET %s: %d %s", path, a.status, a.body)
		}
	}
	wrong, _ := counter(t, "another")
	server := quiet(s)
	server.Credential = packs.BearerKey(key)
	if err := wrong.Serve(t.Context(), server); err == nil || !strings.Contains(err.Error(), "may not provide the pack") {
		t.Errorf("the key provides another pack: %v", err)
	}
	many := packs.New("code-review", "1")
	for i := range 65 {
		must(t, packs.Tool(many, "t"+strconv.Itoa(i), "", func(context.Context, struct{}) (string, error) { return "", nil }))
	}
	if err := many.Serve(t.Context(), server); err == nil || !strings.Contains(err.Error(), "at most 64") {
		t.Errorf("65 tools: %v", err)
	}
}

// TestSkillChannelEnds: a call ends when its skill is removed, and so does the program's stream, within 5 s; the same when the
// skill is replaced, or the thread deleted. While a program is away its tools are, and they are back with it.
func TestSkillChannelEnds(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	s.acquire("t", "direct")
	for what, end := range map[string]func(){
		"removed": func() { s.do("DELETE", "/api/threads/t/skills/code-review", nil) },
		"replaced": func() {
			s.do("POST", "/api/threads/t/skills", map[string]any{"name": "code-review", "description": "x", "replace": true, "channel": true})
		},
		"deleted": func() { s.do("DELETE", "/api/threads/t", nil) },
	} {
		a, ended := s.attach("t", "code-review")
		s.activate("t", "code-review")
		answered := make(chan answer, 1)
		go func() {
			got, _ := s.request("POST", "/api/threads/t/skills/code-review/tools/wait", map[string]any{})
			answered <- got
		}()
		<-ended
		began := time.Now()
		end()
		if got := <-answered; got.code() != "unavailable" {
			t.Errorf("%s while a call ran: %d %s", what, got.status, got.body)
		}
		if err := <-ended; err == nil {
			t.Errorf("%s: the handler is not told", what)
		}
		<-a.Done()
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s: it took %s", what, took)
		}
		if a.Err() == nil {
			t.Errorf("%s: the program is not told", what)
		}
		server := quiet(s)
		server.Credential = packs.BearerKey(a.Added.Channel.Key)
		again, _ := counter(t, "code-review")
		if err := again.Serve(t.Context(), server); err == nil || !strings.Contains(err.Error(), "attach the skill again") {
			t.Errorf("%s: its key is still good: %v", what, err)
		}
		s.do("DELETE", "/api/threads/t/skills/code-review", nil)
	}

	var added skerry.AddedSkill
	s.do("POST", "/api/threads/away/skills", map[string]any{"name": "code-review", "description": "x", "channel": true}).into(t, &added)
	input := map[string]any{"text": "a"}
	if a := s.activate("away", "code-review"); !strings.Contains(string(a.body), "away") {
		t.Errorf("activation without its program: %s", a.body)
	}
	if a := s.skillTool("away", "code-review", "count-lines", input); a.code() != "unavailable" || !strings.Contains(string(a.body), "not connected") {
		t.Errorf("before its program came: %d %s", a.status, a.body)
	}
	for range 2 {
		p, _ := counter(t, "code-review")
		stop := s.provide(p, packs.BearerKey(added.Channel.Key))
		if a := s.skillTool("away", "code-review", "count-lines", input); a.status != 200 {
			t.Errorf("with its program: %d %s", a.status, a.body)
		}
		stop()
		if a := s.skillTool("away", "code-review", "count-lines", input); a.code() != "unavailable" || !strings.Contains(string(a.body), "not connected") {
			t.Errorf("its program is away: %d %s", a.status, a.body)
		}
	}
}

// TestSkillChannelRestart: a server that is started again has lost the skill, its program attaches it again by itself, and it
// is active as before. Skills of a thread are listed in the order in which it was given them.
func TestSkillChannelRestart(t *testing.T) {
	whole(t, TestSkillChannelEnds)
	t.Parallel()
	s := start(t, options{})
	s.args[slices.Index(s.args, "127.0.0.1:0")] = strings.TrimPrefix(s.url, "http://")
	s.acquire("t", "direct")
	s.attach("t", "zeta")
	s.activate("t", "zeta")
	s.stop()
	s.boot()
	eventually(t, "the skill is back", func() bool {
		return s.skillTool("t", "zeta", "count-lines", lineText{"a"}).status == 200
	})
	s.attach("t", "alpha")
	a := s.do("GET", "/api/threads/t/prompt", nil)
	if zeta, alpha := strings.Index(string(a.body), "zeta"), strings.Index(string(a.body), "alpha"); zeta < 0 || alpha < zeta {
		t.Errorf("the prompt lists them in another order: %s", a.body)
	}
	var found struct{ Skills []struct{ Name string } }
	s.do("GET", "/api/threads/t/skills", nil).into(t, &found)
	if len(found.Skills) < 2 || found.Skills[0].Name != "zeta" || found.Skills[1].Name != "alpha" {
		t.Errorf("they are listed in another order: %+v", found)
	}
}
