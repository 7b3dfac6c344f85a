package e2b

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// sign makes the query of a signed URL as E2B's SDKs do.
func sign(path, operation, user, token string, expiration int64) string {
	raw := path + ":" + operation + ":" + user + ":" + token
	v := url.Values{"path": {path}, "username": {user}}
	if expiration != 0 {
		raw += fmt.Sprintf(":%d", expiration)
		v.Set("signature_expiration", fmt.Sprint(expiration))
	}
	sum := sha256.Sum256([]byte(raw))
	v.Set("signature", "v1_"+base64.RawStdEncoding.EncodeToString(sum[:]))
	return v.Encode()
}

// madeBy creates a sandbox and returns its id and token.
func madeBy(t *testing.T, url, key string) (id, token string) {
	t.Helper()
	_, answer := call(t, "POST", url+"/sandboxes", "", `{"timeout":60}`, "X-API-Key: "+keyPrefix+hex.EncodeToString([]byte(key)))
	var got struct{ SandboxID, EnvdAccessToken string }
	if err := json.Unmarshal([]byte(answer), &got); err != nil || got.EnvdAccessToken == "" {
		t.Fatalf("%s %v", answer, err)
	}
	return got.SandboxID, got.EnvdAccessToken
}

// TestSignedURLs: a URL that an SDK signed reads or writes one file of one sandbox until its time is over, for a client without a
// key. What is not signed so is 401.
func TestSignedURLs(t *testing.T) {
	_, srv := start(t)
	id, token := madeBy(t, srv.URL, "sk_1")
	_, other := madeBy(t, srv.URL, "sk_1")
	if token == other {
		t.Error("two sandboxes have one token")
	}
	if credential(token) != "sk_1" {
		t.Errorf("the token %q is not the credential", token)
	}
	later, before := time.Now().Add(time.Minute).Unix(), time.Now().Add(-time.Minute).Unix()
	files := srv.URL + "/files?"
	if status, body := call(t, "POST", files+sign("a b.txt", "write", "user", token, later), "", "hello", "Content-Type: application/octet-stream"); status != 200 {
		t.Fatal(status, body)
	}
	for _, q := range []string{sign("a b.txt", "read", "user", token, later), sign("a b.txt", "read", "", token, 0), sign("/home/user/a b.txt", "read", "user", token, 0)} {
		if status, body := call(t, "GET", files+q, "", ""); status != 200 || body != "hello" {
			t.Errorf("%s: %d %s", q, status, body)
		}
	}
	good := sign("a b.txt", "read", "user", token, later)
	for q, want := range map[string]string{
		sign("a b.txt", "read", "user", token, before):                                        "signature is already expired",
		sign("a b.txt", "write", "user", token, later):                                        "invalid signature",
		sign("a b.txt", "read", "user", token+"x", later):                                     "invalid signature",
		sign("a b.txt", "read", "user", keyPrefix+"00"+tokenOf+id, later):                     "invalid signature",
		strings.Replace(good, "a+b.txt", "c.txt", 1):                                          "invalid signature",
		strings.Replace(good, fmt.Sprint(later), fmt.Sprint(later+1), 1):                      "invalid signature",
		strings.Replace(good, "&signature_expiration="+fmt.Sprint(later), "", 1):              "invalid signature",
		strings.Replace(good, fmt.Sprint(later), "soon", 1):                                   "signature is already expired",
		strings.Replace(good, "v1_", "v2_", 1):                                                "invalid signature",
		"path=a&signature=":                                                                   "invalid signature",
		"path=a&signature=v1_x":                                                               "invalid signature",
		"path=" + strings.Repeat("a", maxPath+1) + "&signature=v1_" + strings.Repeat("A", 43): "invalid signature",
	} {
		// A client that names a sandbox of its own does not get past a signature that is none.
		status, body := call(t, "GET", files+q, id, "", "X-API-Key: sk_1")
		var got struct {
			Code    int
			Message string
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil || status != 401 || got.Code != 401 || got.Message != want {
			t.Errorf("%.200s: %d %s, want %q", q, status, body, want)
		}
	}
	if status, body := call(t, "GET", files+sign("a b.txt", "read", "root", token, later), "", ""); status != 501 || !strings.Contains(body, "user root") {
		t.Error(status, body)
	}
	// The request that goes on has the key, as any other, so that a key that was revoked ends what it signed.
	h, a := adapter(t)
	defer a.Close()
	a.known.note(request{caller: me, thread: id, token: token}, h.threads[id])
	r, err := http.NewRequestWithContext(t.Context(), "GET", files+good, nil)
	if err != nil {
		t.Fatal(err)
	}
	a.prepare(r)
	if r.Header.Get("X-API-Key") != "sk_1" || r.Header.Get(sandboxHeader) != id || r.URL.Query().Has("signature") || r.URL.Query().Get("path") != "a b.txt" {
		t.Error(r.Header, r.URL)
	}
	// A sandbox that is gone signs nothing.
	if status, body := call(t, "DELETE", srv.URL+"/sandboxes/"+id, "", ""); status != 204 {
		t.Error(status, body)
	}
	if status, body := call(t, "GET", files+good, "", ""); status != 401 {
		t.Error(status, body)
	}
}

// TestTokens: the last tokens of a sandbox are remembered, and not more of them.
func TestTokens(t *testing.T) {
	s := &known{}
	for i := range 2 * maxTokens {
		s.remember(request{token: fmt.Sprint(i)})
		s.remember(request{token: fmt.Sprint(i)})
	}
	if len(s.signers) != maxTokens || s.signers[maxTokens-1].token != fmt.Sprint(2*maxTokens-1) {
		t.Error(s.signers)
	}
}

// TestSignedURLOnBehalf: a URL is for the user for whom its key acted when it was made. Its client cannot choose another one.
func TestSignedURLOnBehalf(t *testing.T) {
	const key, id = "sk_1", "e2bsame"
	sent := func(a *Adapter, header string) *http.Request {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://x/files?"+sign("a", "read", "user", keyPrefix+hex.EncodeToString([]byte(key))+tokenOf+id, 0), nil)
		if err != nil {
			t.Fatal(err)
		}
		if header != "" {
			r.Header.Set("On-Behalf-Of", header)
		}
		a.prepare(r)
		return r
	}
	of := func(user, actor string) request {
		c := me
		c.User, c.Actor = user, actor
		return request{caller: c, thread: id, token: keyPrefix + hex.EncodeToString([]byte(key)) + tokenOf + id}
	}
	_, a := adapter(t)
	defer a.Close()
	a.known.note(of("bot", "bot"), sandbox.ThreadView{})
	if r := sent(a, "ann"); r.Header.Get("X-API-Key") != key || r.Header.Get("On-Behalf-Of") != "" {
		t.Errorf("a URL of the key's own user: %v", r.Header)
	}
	_, b := adapter(t)
	defer b.Close()
	b.known.note(of("bob", "bot"), sandbox.ThreadView{})
	for _, header := range []string{"", "ann"} {
		if r := sent(b, header); r.Header.Get("X-API-Key") != key || r.Header.Get("On-Behalf-Of") != "bob" {
			t.Errorf("a URL of bob's, sent for %q: %v", header, r.Header)
		}
	}
	// It would be random which of them it is.
	b.known.note(of("ann", "bot"), sandbox.ThreadView{})
	if r := sent(b, ""); r.Header.Get("X-API-Key") != "" || !r.URL.Query().Has("signature") {
		t.Errorf("a URL of two sandboxes: %v", r.Header)
	}
	names := map[string]bool{}
	for _, user := range []string{"", "ann", "bob"} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://x/sandboxes", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(sandbox.KeyHeader, "once")
		r.Header.Set("On-Behalf-Of", user)
		names[newSandboxID(r)] = true
	}
	if len(names) != 3 {
		t.Errorf("one Idempotency-Key of three users: %v", names)
	}
}
