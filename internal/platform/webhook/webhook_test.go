package webhook

import (
	"encoding/base64"
	"net/http"
	"testing"
	"time"
)

// TestSign: the example of the specification, whose library makes this signature.
func TestSign(t *testing.T) {
	secret, err := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	h, at, body := http.Header{}, time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`)
	Sign(h, secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", at, body)
	if got := h.Get(HeaderSignature); got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("%s", got)
	}
}

// TestVerify: what Sign signs is taken, beside another signature; every change to it is refused.
func TestVerify(t *testing.T) {
	now, secret := time.Unix(1_800_000_000, 0), []byte("secret")
	for name, change := range map[string]struct {
		edit func(h http.Header)
		id   string
		body string
		at   time.Time
		ok   bool
	}{
		"as signed":         {ok: true},
		"a second one":      {edit: func(h http.Header) { h.Set(HeaderSignature, "v1,other "+h.Get(HeaderSignature)) }, ok: true},
		"another id":        {id: "b"},
		"another body":      {body: "no"},
		"late":              {at: now.Add(MaxSkew + time.Second)},
		"early":             {at: now.Add(-MaxSkew - time.Second)},
		"another time":      {edit: func(h http.Header) { h.Set(HeaderTime, "1800000001") }},
		"no time":           {edit: func(h http.Header) { h.Del(HeaderTime) }},
		"no signature":      {edit: func(h http.Header) { h.Del(HeaderSignature) }},
		"another signature": {edit: func(h http.Header) { h.Set(HeaderSignature, "v1,AAAA") }},
	} {
		h := http.Header{}
		Sign(h, secret, "a", now, []byte("yes"))
		if change.edit != nil {
			change.edit(h)
		}
		id, body, at := "a", "yes", now
		if change.id != "" {
			id = change.id
		}
		if change.body != "" {
			body = change.body
		}
		if !change.at.IsZero() {
			at = change.at
		}
		if err := Verify(h, secret, id, at, []byte(body)); (err == nil) != change.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
