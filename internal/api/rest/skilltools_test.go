package rest

import (
	"strings"
	"testing"
)

func TestSkillTools(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := handler(t, w)
	rec := send(h, "POST", "/api/threads/t1/skills", `{"name":"now","description":"d","body":"b","files":{"scripts/a.py":"x"}}`)
	if m := decodeBody(t, rec); rec.Code != 201 || m["category"] != "virtual" || m["location"] != "/mnt/skills/virtual/now/SKILL.md" || w.virtual.Files["scripts/a.py"] != "x" || w.virtual.Body != "b" {
		t.Errorf("%d %v %+v", rec.Code, m, w.virtual)
	}
	rec = send(h, "POST", "/api/threads/t1/skills/pdf/activate", "")
	m := decodeBody(t, rec)
	content, _ := m["content"].(string)
	if rec.Code != 200 || !strings.HasPrefix(content, "<skill_content name=\"pdf\">\n# Read\n") || !strings.Contains(content, "<file>a/run.py</file>") || m["location"] != "/mnt/skills/public/pdf/SKILL.md" {
		t.Errorf("%d %v", rec.Code, m)
	}
	if list, ok := m["resources"].([]any); !ok || len(list) != 1 || list[0] != "a/run.py" {
		t.Errorf("%v", m["resources"])
	}
	for path, want := range map[string]map[string]any{
		"SKILL.md":  {"text": "hi", "mime": "text/markdown", "location": "/mnt/skills/public/pdf/SKILL.md"},
		"a/b/c.bin": {"text": nil, "bytes": 3.0, "location": "/mnt/skills/public/pdf/a/b/c.bin"},
	} {
		m := decodeBody(t, send(h, "GET", "/api/threads/t1/skills/pdf/files?path="+path, ""))
		for k, v := range want {
			if m[k] != v {
				t.Errorf("%s: %s is %v, want %v", path, k, m[k], v)
			}
		}
	}
	if m := decodeBody(t, send(h, "GET", "/api/threads/t1/skills?query=read", "")); m["match_count"] != 7.0 || m["query"] != "read" {
		t.Errorf("%v", m)
	}
	for request, code := range map[string]int{
		"DELETE /api/threads/t1/skills/now":                          204,
		"DELETE /api/threads/t1/skills/pdf":                          404,
		"POST /api/threads/t1/skills/none/activate":                  404,
		"GET /api/threads/t1/skills/pdf/files?path=../../etc/passwd": 404,
		"GET /api/threads/t1/skills/pdf/files?path=":                 400,
		"GET /api/threads/t1/skills/pdf/files":                       400,
		"GET /api/threads/t1/skills/none/files?path=SKILL.md":        404,
	} {
		method, url, _ := strings.Cut(request, " ")
		if rec := send(h, method, url, ""); rec.Code != code {
			t.Errorf("%s: %d %s, want %d", request, rec.Code, rec.Body, code)
		}
	}
	for _, bad := range []string{`{"name":"","description":"d","body":"b"}`, `{"name":"x","files":{"a":"b"},"binary_files":{"a":"Yg=="}}`, `{"name":"x","binary_files":{"a":"no base64!"}}`, `{"name":"x","description":"d","body":"b","files":{"a":1}}`, `[]`} {
		if rec := send(h, "POST", "/api/threads/t1/skills", bad); rec.Code != 400 && rec.Code != 422 {
			t.Errorf("%s: %d", bad, rec.Code)
		}
	}
}
