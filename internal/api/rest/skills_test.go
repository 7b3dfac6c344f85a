package rest

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestSkills(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := handler(t, w)
	const want = `{"skills":[` +
		`{"name":"broken","description":"","license":"","compatibility":"","allowed_tools":[],"metadata":{},"category":"custom","enabled":false,"location":"","digest":"","trusted":false,"template":"",` +
		`"findings":[{"rule":"yaml","severity":"error","file":"SKILL.md","line":3,"message":"no"}],"runnable":{"template":"unknown","missing":[]}},` +
		`{"name":"pdf","description":"reads","license":"MIT","compatibility":"Python 3","allowed_tools":["Read","Bash(git:*)"],"metadata":{"version":"1"},"category":"public","enabled":true,"location":"/mnt/skills/public/pdf/SKILL.md","digest":"sha256:00","trusted":true,"template":"data",` +
		`"findings":[],"runnable":{"template":"unknown","missing":[]}}]}`
	if rec := send(h, "GET", "/api/skills", ""); rec.Code != 200 || strings.TrimSpace(rec.Body.String()) != want {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	if m := decodeBody(t, send(h, "GET", "/api/skills/pdf", "")); m["name"] != "pdf" {
		t.Errorf("%v", m)
	}
	wantProblem(t, send(h, "GET", "/api/skills/none", ""), 404, "not_found")
	if m := decodeBody(t, send(h, "PUT", "/api/skills/pdf", `{"enabled":false}`)); m["enabled"] != false {
		t.Errorf("%v", m)
	}
	if rec := send(h, "PUT", "/api/skills/pdf", `{"enabled":true,"for":"everybody"}`); rec.Code != 200 {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	wantProblem(t, send(h, "PUT", "/api/skills/none", `{"enabled":true}`), 404, "not_found")
	wantProblem(t, send(h, "PUT", "/api/skills/pdf", `{}`), 400, "invalid")

	rec := send(h, "GET", "/api/skills/custom/mine", "")
	if rec.Code != 200 || rec.Body.String() != "---\r\nraw" || !strings.HasPrefix(rec.Header().Get("Content-Type"), "text/markdown") || rec.Header().Get("Content-Security-Policy") == "" {
		t.Errorf("%d %v %s", rec.Code, rec.Header(), rec.Body)
	}
	if rec := send(h, "PUT", "/api/skills/custom/pdf", "---\r\nnew", "Content-Type: text/markdown"); rec.Code != 200 || !strings.Contains(rec.Body.String(), `"name":"pdf"`) {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	wantProblem(t, send(h, "PUT", "/api/skills/custom/pdf", strings.Repeat("x", maxSkillText+1), "Content-Type: text/markdown"), 400, "invalid")
	if rec := send(h, "DELETE", "/api/skills/custom/mine", ""); rec.Code != 204 {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	if want := []string{"switch pdf false false", "switch pdf true true", "switch none true false", "write pdf ---\r\nnew", "delete mine"}; !slices.Equal(w.changes, want) {
		t.Errorf("%q", w.changes)
	}
	for text, want := range map[string]any{"---\nraw <b>": "---\nraw <b>", "": nil, "\xff": nil, strings.Repeat("x", maxSkillText+1): nil} {
		w.skillText = text
		if m := decodeBody(t, send(h, "GET", "/api/skills/pdf?text=true", "")); m["text"] != want || m["name"] != "pdf" {
			t.Errorf("the text %.20q is told as %.20v", text, m["text"])
		}
		if m := decodeBody(t, send(h, "GET", "/api/skills/pdf", "")); m["text"] != nil {
			t.Errorf("nobody asked for %.20v", m["text"])
		}
	}
	w.skillText = ""
	h = handler(t, w, func(o *Options) {
		o.Runnable = func(_ context.Context, _ sandbox.Caller, sk sandbox.Skill, template string) (sandbox.Runnable, error) {
			if template == "moon" {
				return sandbox.Runnable{}, sandbox.Errorf(sandbox.NotFound, "there is no template")
			}
			return sandbox.Runnable{Template: sandbox.RunnableNo, Missing: []string{"what " + sk.Name + " wants" + template}}, nil
		}
	})
	if rec := send(h, "GET", "/api/skills/pdf", ""); !strings.Contains(rec.Body.String(), `"runnable":{"template":"no","missing":["what pdf wantsdata"]}`) {
		t.Errorf("%s", rec.Body)
	}
	for _, path := range []string{"/api/skills", "/api/skills/pdf"} {
		if rec := send(h, "GET", path+"?template=+here", ""); !strings.Contains(rec.Body.String(), "wants here") {
			t.Errorf("%s: %s", path, rec.Body)
		}
		wantProblem(t, send(h, "GET", path+"?template=moon", ""), 404, "not_found")
	}
}
