package rest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/secrets"
)

// fakeSecrets notes what is done to secrets.
type fakeSecrets struct {
	did []string
	err error
}

func (f *fakeSecrets) Put(_ context.Context, c sandbox.Caller, scope secrets.Scope, name, value string, exec bool) (secrets.Info, bool, error) {
	f.did = append(f.did, fmt.Sprint("put ", c.User, " ", scope, " ", name, " ", value, " ", exec))
	return secrets.Info{Name: name, Scope: string(scope), Source: "stored", Exec: exec}, len(f.did) == 1, f.err
}

func (f *fakeSecrets) Get(_ context.Context, _ sandbox.Caller, name string) ([]secrets.Info, error) {
	return []secrets.Info{{Name: name, Scope: "tenant", Source: "file"}}, f.err
}

func (f *fakeSecrets) List(context.Context, sandbox.Caller) ([]secrets.Info, error) {
	return []secrets.Info{{Name: "A", Scope: "tenant", Source: "env"}}, f.err
}

func (f *fakeSecrets) Delete(_ context.Context, c sandbox.Caller, scope secrets.Scope, name string) error {
	f.did = append(f.did, fmt.Sprint("delete ", c.User, " ", scope, " ", name))
	return f.err
}

func (f *fakeSecrets) Rotate(context.Context, sandbox.Caller) (secrets.Rotation, error) {
	return secrets.Rotation{Renewed: 3}, f.err
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	w, f := newWorld(t), &fakeSecrets{}
	h := handler(t, w, func(o *Options) { o.Keys, o.Anonymous, o.Secrets = w, nil, f })
	const value = "sk-live-0123456789"
	rec := send(h, "PUT", "/api/secrets/TOKEN?scope=server%2Fcrm", `{"value":"`+value+`","exec":true}`, "X-API-Key: root")
	if m := decodeBody(t, rec); rec.Code != 201 || m["name"] != "TOKEN" || m["scope"] != "server/crm" || m["exec"] != true {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	rec = send(h, "PUT", "/api/secrets/TOKEN", `{"value":"`+value+`"}`, "X-API-Key: ann")
	if rec.Code != 200 || strings.Contains(rec.Body.String(), value) {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	if rec = send(h, "DELETE", "/api/secrets/TOKEN?scope=tenant", "", "X-API-Key: root"); rec.Code != 204 {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	want := "put root server/crm TOKEN sk-live-0123456789 true; put ann  TOKEN sk-live-0123456789 false; delete root tenant TOKEN"
	if got := strings.Join(f.did, "; "); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if rec = send(h, "GET", "/api/secrets", "", "X-API-Key: ann"); !strings.Contains(rec.Body.String(), `"source":"env"`) {
		t.Error(rec.Body)
	}
	if rec = send(h, "GET", "/api/secrets/B", "", "X-API-Key: ann"); !strings.Contains(rec.Body.String(), `"source":"file"`) {
		t.Error(rec.Body)
	}
	wantProblem(t, send(h, "POST", "/api/secrets/rotate", "{}", "X-API-Key: ann"), 403, "forbidden")
	if rec = send(h, "POST", "/api/secrets/rotate", "{}", "X-API-Key: root"); !strings.Contains(rec.Body.String(), `"renewed":3`) {
		t.Error(rec.Body)
	}
	// Whatever is wrong with a request, what was sent does not come back.
	for _, body := range []string{`{"value":["` + value + `"]}`, `{"value":"x","` + value + `":1}`, `{"exec":"` + value + `"}`, `{"value":"` + value, `"` + value + `"`} {
		rec := send(h, "PUT", "/api/secrets/TOKEN", body, "X-API-Key: ann")
		if rec.Code < 400 || rec.Code >= 500 || strings.Contains(rec.Body.String(), "0123456789") && !strings.HasPrefix(body, `{"value":"x"`) {
			t.Errorf("%s: %d %s", body, rec.Code, rec.Body)
		}
	}
	h = handler(t, w)
	wantProblem(t, send(h, "GET", "/api/secrets", ""), 501, "not_supported")
}
