package rest

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// fakePlugins remembers what it was asked.
type fakePlugins struct {
	req     sandbox.PluginInstall
	archive string
	said    string
}

func (f *fakePlugins) List(context.Context, sandbox.Caller) ([]sandbox.Plugin, error) {
	return []sandbox.Plugin{{Name: "sales", PluginContents: sandbox.PluginContents{Skills: []sandbox.PluginSkill{}}}}, nil
}

func (f *fakePlugins) Get(_ context.Context, _ sandbox.Caller, name string) (sandbox.Plugin, error) {
	if name != "sales" {
		return sandbox.Plugin{}, sandbox.Errorf(sandbox.NotFound, "there is no plugin %q", name)
	}
	return sandbox.Plugin{Name: name, Enabled: true}, nil
}

func (f *fakePlugins) Install(_ context.Context, c sandbox.Caller, r io.Reader, req sandbox.PluginInstall) (sandbox.Plugin, error) {
	f.req, f.archive = req, ""
	if r != nil {
		data, err := io.ReadAll(r)
		if err != nil {
			return sandbox.Plugin{}, err
		}
		f.archive = string(data)
	}
	return sandbox.Plugin{Name: "p-of-" + c.User, PluginContents: sandbox.PluginContents{Findings: []sandbox.Finding{}}}, nil
}

func (f *fakePlugins) SetValues(_ context.Context, _ sandbox.Caller, name string, values map[string]any) (sandbox.Plugin, error) {
	f.said = name + fmt.Sprint(values)
	return sandbox.Plugin{Name: name}, nil
}

func (f *fakePlugins) Switch(_ context.Context, _ sandbox.Caller, name string, on bool) (sandbox.Plugin, error) {
	f.said = fmt.Sprint(name, on)
	return sandbox.Plugin{Name: name}, nil
}

func (f *fakePlugins) Remove(_ context.Context, _ sandbox.Caller, name string) error {
	f.said = "remove " + name
	return nil
}

func (f *fakePlugins) Commands(_ context.Context, _ sandbox.Caller, name string, skills bool) ([]sandbox.PluginCommand, error) {
	return []sandbox.PluginCommand{{Name: "do", Description: "d", ArgumentHint: "[x]", Kind: "command", Hidden: skills}}, nil
}

func (f *fakePlugins) Invoke(_ context.Context, c sandbox.Caller, thread, plugin, command, args string) (sandbox.PluginMessage, error) {
	return sandbox.PluginMessage{Message: strings.Join([]string{c.User, thread, plugin, command, args}, "|"), Findings: []sandbox.Finding{}}, nil
}

func (f *fakePlugins) ReadMessage(_ context.Context, c sandbox.Caller, thread, text string) (sandbox.TypedCommand, error) {
	return sandbox.TypedCommand{Message: strings.Join([]string{c.User, thread, text}, "|"), Findings: []sandbox.Finding{}}, nil
}

func (f *fakePlugins) Marketplaces(context.Context, sandbox.Caller) ([]sandbox.Marketplace, error) {
	return []sandbox.Marketplace{{Name: "m", Plugins: []sandbox.MarketplaceEntry{}}}, nil
}

func (f *fakePlugins) AddMarketplace(_ context.Context, c sandbox.Caller, req sandbox.PluginInstall) (sandbox.Marketplace, error) {
	f.req = req
	return sandbox.Marketplace{Name: "m"}, nil
}

func (f *fakePlugins) RemoveMarketplace(_ context.Context, _ sandbox.Caller, name string) error {
	return sandbox.Errorf(sandbox.NotFound, "there is no marketplace %q", name)
}

func TestPluginsOverHTTP(t *testing.T) {
	t.Parallel()
	f := &fakePlugins{}
	h := handler(t, newWorld(t), func(o *Options) { o.Plugins, o.Marketplaces, o.Messages = f, f, f })
	if m := decodeBody(t, send(h, "GET", "/api/plugins", "")); fmt.Sprint(m["items"]) == "[]" || m["items"] == nil {
		t.Errorf("%v", m)
	}
	if m := decodeBody(t, send(h, "GET", "/api/plugins/sales", "")); m["name"] != "sales" || m["enabled"] != true {
		t.Errorf("%v", m)
	}
	wantProblem(t, send(h, "GET", "/api/plugins/none", ""), 404, "not_found")
	send(h, "PUT", "/api/plugins/sales", `{"enabled":true}`)
	if f.said != "salestrue" {
		t.Error(f.said)
	}
	send(h, "PUT", "/api/plugins/sales/values", `{"values":{"K":"v"}}`)
	if f.said != "salesmap[K:v]" {
		t.Error(f.said)
	}
	wantProblem(t, send(h, "PUT", "/api/plugins/sales/values", `{"values":{}}`), 400, "invalid")
	wantProblem(t, send(h, "PUT", "/api/plugins/sales", `{}`), 400, "invalid")
	if rec := send(h, "DELETE", "/api/plugins/sales", ""); rec.Code != 204 || f.said != "remove sales" {
		t.Error(rec.Code, f.said)
	}
	if m := decodeBody(t, send(h, "GET", "/api/plugins/sales/commands", "")); fmt.Sprint(m["items"]) != "[map[argument_hint:[x] description:d kind:command name:do]]" {
		t.Errorf("%v", m)
	}
	m := decodeBody(t, send(h, "POST", "/api/threads/t1/commands/sales/team:do", `{"args":"Acme Corp"}`))
	if text := fmt.Sprint(m["message"]); !strings.HasSuffix(text, "|t1|sales|team:do|Acme Corp") {
		t.Error(text)
	}
	m = decodeBody(t, send(h, "POST", "/api/threads/t1/commands", `{"text":"/sales:do Acme"}`))
	if text := fmt.Sprint(m["message"]); !strings.HasSuffix(text, "|t1|/sales:do Acme") || m["recognised"] != false {
		t.Error(m)
	}
	for _, bad := range []string{`{}`, `{"text":1}`, `{"text":"` + strings.Repeat("x", 1<<20+1) + `"}`} {
		wantProblem(t, send(h, "POST", "/api/threads/t1/commands", bad), 400, "invalid")
	}
	if m := decodeBody(t, send(h, "GET", "/api/marketplaces", "")); m["items"] == nil {
		t.Errorf("%v", m)
	}
	send(h, "POST", "/api/marketplaces", `{"source":"o/r","ref":"v1"}`)
	if f.req.From != "o/r" || f.req.Ref != "v1" {
		t.Errorf("%+v", f.req)
	}
	wantProblem(t, send(h, "POST", "/api/marketplaces", `{}`), 400, "invalid")
	wantProblem(t, send(h, "DELETE", "/api/marketplaces/none", ""), 404, "not_found")
	bare := handler(t, newWorld(t), func(o *Options) { o.Plugins, o.Marketplaces, o.Messages = nil, nil, nil })
	wantProblem(t, send(bare, "GET", "/api/plugins/sales", ""), 501, "not_supported")
	wantProblem(t, send(bare, "POST", "/api/threads/t1/commands", `{"text":"/a:b"}`), 501, "not_supported")
	if m := decodeBody(t, send(bare, "GET", "/api/plugins", "")); fmt.Sprint(m["items"]) != "[]" {
		t.Errorf("%v", m)
	}
}

func TestInstallPluginOverHTTP(t *testing.T) {
	t.Parallel()
	f := &fakePlugins{}
	h := handler(t, newWorld(t), func(o *Options) { o.Plugins, o.Marketplaces, o.Messages = f, f, f })
	const route = "/api/plugins/install"
	m := decodeBody(t, send(h, "POST", route+"?shared=true&strict=true&enabled=false", `{"source":"https://x.example/p.zip","sha256":"`+strings.Repeat("a", 64)+`","folder":"sub"}`))
	want := sandbox.PluginInstall{From: "https://x.example/p.zip", SHA256: strings.Repeat("a", 64), Path: "sub", Shared: true, Strict: true, Disabled: true}
	if m["success"] != true || !strings.HasPrefix(fmt.Sprint(m["plugin_name"]), "p-of-") || f.req != want {
		t.Errorf("%v %+v", m, f.req)
	}
	decodeBody(t, send(h, "POST", route, `{"marketplace":"m","plugin":"p"}`))
	if want := (sandbox.PluginInstall{Marketplace: "m", Plugin: "p"}); f.req != want {
		t.Errorf("%+v", f.req)
	}
	form := "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a/b.tgz\"\r\n\r\nthe bytes\r\n--x--\r\n"
	decodeBody(t, send(h, "POST", route, form, "Content-Type: multipart/form-data; boundary=x"))
	if f.archive != "the bytes" || f.req.From != "b.tgz" {
		t.Errorf("%q %+v", f.archive, f.req)
	}
	for _, bad := range []string{`{}`, `{"source":"a/b","marketplace":"m","plugin":"p"}`, `{"marketplace":"m"}`, `{"source":"a/b","more":1}`, `[`, `{"source":"` + strings.Repeat("x", 3000) + `"}`} {
		wantProblem(t, send(h, "POST", route, bad), 400, "invalid")
	}
	wantProblem(t, send(h, "POST", route, `{"thread_id":"t","path":"/mnt/user-data/../../etc/x.zip"}`), 403, "forbidden")
	wantProblem(t, send(h, "POST", route, "x", "Content-Type: text/plain"), 415, "invalid")
}

// TestPluginInstallDocument: the document has all that the body of an install may have.
func TestPluginInstallDocument(t *testing.T) {
	t.Parallel()
	doc := send(handler(t, newWorld(t)), "GET", "/openapi.json", "").Body.String()
	at := strings.Index(doc, `"operationId":"installPlugin"`)
	if at < 0 || !strings.Contains(doc[at:at+4000], `"source":{`) || !strings.Contains(doc[at:at+4000], `"marketplace":{`) {
		t.Errorf("%.4000s", doc[max(at, 0):])
	}
}
