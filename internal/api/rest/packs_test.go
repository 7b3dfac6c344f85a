package rest

import (
	"context"
	"net/http"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// deletedKeys notes the keys that are deleted.
type deletedKeys struct {
	toolPacks

	ids []string
}

func (*deletedKeys) Handler() http.Handler { return http.NotFoundHandler() }

func (d *deletedKeys) DeleteKey(_ context.Context, _ sandbox.Caller, id string) error {
	d.ids = append(d.ids, id)
	return nil
}

// TestDeletePackKey: the fingerprint of a key arrives whole, with each character that base64 has.
func TestDeletePackKey(t *testing.T) {
	t.Parallel()
	o, _ := newWorld(t).options(t)
	keys := &deletedKeys{}
	o.Packs = keys
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	for escaped, want := range map[string]string{"SHA256:a%2Fb+c": "SHA256:a/b+c", "SHA256:a%2Fb%2Bc": "SHA256:a/b+c", "SHA256:b+c": "SHA256:b+c"} {
		keys.ids = nil
		if rec := send(h, "DELETE", "/api/packs/keys/"+escaped, ""); rec.Code != 204 || len(keys.ids) != 1 || keys.ids[0] != want {
			t.Errorf("%s: %d %s, deleted %q", escaped, rec.Code, rec.Body, keys.ids)
		}
	}
}
