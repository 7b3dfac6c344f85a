package e2b

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestList: sandboxes come in pages, the newest first, and fit what was asked for.
func TestList(t *testing.T) {
	h, srv := start(t)
	day := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, template := range []string{"base", "data", "base", "data", "base"} {
		id := fmt.Sprintf("e2b%d", i)
		h.threads[id] = sandbox.ThreadView{
			ThreadInfo: sandbox.ThreadInfo{
				Thread: sandbox.Thread{Owner: me.Owner, ID: id}, CreatedAt: day.Add(time.Duration(i) * time.Hour),
				Labels: map[string]string{labelMade: "1", labelEnds: day.Add(time.Hour).Format(time.RFC3339Nano), "n": id},
			},
			Sandbox: &sandbox.Info{Template: template, State: sandbox.Running},
		}
	}
	v := h.threads["e2b4"]
	v.Sandbox.State = sandbox.Paused
	h.threads["mine"] = sandbox.ThreadView{Sandbox: &sandbox.Info{}}
	for query, want := range map[string]string{
		"":                                  "43210",
		"limit=2":                           "43,21,0",
		"limit=2&order=asc":                 "01,23,4",
		"state=running":                     "3210",
		"state=paused,running&limit=4":      "4321,0",
		"template=data":                     "31",
		"template=code-interpreter-v1":      "31",
		"template=nosuch":                   "",
		"startedAfter=2100-01-01T01:00:00Z": "432",
		"metadata=n%3De2b2":                 "2",
		"metadata=n%3De2b2&state=paused":    "",
		"startedAfter=2100-01-01T00:00:00.5Z&order=asc&limit=3": "123,4",
	} {
		var pages []string
		for next := ""; ; {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/v2/sandboxes?"+query+"&nextToken="+next, nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			var got []struct{ SandboxID string }
			err = json.NewDecoder(res.Body).Decode(&got)
			_ = res.Body.Close()
			if err != nil || res.StatusCode != http.StatusOK {
				t.Fatal(query, res.StatusCode, err)
			}
			page := ""
			for _, s := range got {
				page += strings.TrimPrefix(s.SandboxID, "e2b")
			}
			pages = append(pages, page)
			if next = res.Header.Get("X-Next-Token"); next == "" {
				break
			}
		}
		if got := strings.Join(pages, ","); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	for _, query := range []string{"order=newest", "startedAfter=yesterday", "nextToken=%25", "limit=0", "state=gone"} {
		if status, body := call(t, http.MethodGet, srv.URL+"/v2/sandboxes?"+query, "", ""); status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", query, status, body)
		}
	}
}

// TestTemplates: names of E2B's and names of the configuration stand for templates of the server.
func TestTemplates(t *testing.T) {
	h, a := adapter(t)
	a.o.Templates = map[string]string{"mine": "data", "other": "nosuch"}
	for name, want := range map[string]string{"": "base", "base": "base", "code-interpreter-v1": "data", "data": "data", "mine": "data", "other": "", "none": ""} {
		got, err := templates{a}.named(name)
		if got.Name != want || (err == nil) != (want != "") || err != nil && sandbox.KindOf(err) != sandbox.NotFound {
			t.Errorf("%q: %q, %v", name, got.Name, err)
		}
	}
	a.o.Templates = map[string]string{"base": "data", "code-interpreter-v1": "base"}
	for name, want := range map[string]string{"": "base", "base": "data", "code-interpreter-v1": "base"} {
		if got, err := (templates{a}).named(name); got.Name != want || err != nil {
			t.Errorf("%q: %q, %v", name, got.Name, err)
		}
	}
	a.o.Templates = nil
	h.lacksData = true
	if got, err := (templates{a}).named("code-interpreter-v1"); got.Name != "base" || err != nil {
		t.Errorf("without data: %q, %v", got.Name, err)
	}

	h, srv := start(t)
	tries := 0
	h.acquire = func() error {
		if tries++; tries == 1 {
			return sandbox.Errorf(sandbox.NotFound, "there is no image")
		}
		return nil
	}
	if id := create(t, srv.URL, `{"templateID":"code-interpreter-v1"}`); h.threads[id].Sandbox.Template != "base" {
		t.Errorf("without the image of data: %+v", h.threads[id].Sandbox)
	}
	for path, want := range map[string]string{
		"/templates/aliases/code-interpreter-v1": `200 {"public":true,"templateID":"data"}`,
		"/templates/aliases/a%2Fb":               `404 {"code":404,"message":"template a/b not found; GET /api/templates lists them"}`,
	} {
		if status, body := call(t, http.MethodGet, srv.URL+path, "", ""); fmt.Sprint(status, " ", strings.ReplaceAll(strings.TrimSpace(body), `\"`, "")) != want {
			t.Errorf("%s: %d %s, want %s", path, status, body, want)
		}
	}
	status, body := call(t, http.MethodGet, srv.URL+"/templates?teamID=x", "", "")
	if status != 200 || !strings.Contains(body, `"templateID":"data"`) || !strings.Contains(body, `"names":["data","code-interpreter-v1"]`) {
		t.Errorf("%d %s", status, body)
	}
}
