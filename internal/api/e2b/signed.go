package e2b

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// A signed URL is one that an SDK makes by itself, for a client that has no key: a digest of what it allows and of the
// sandbox's token, which is the key of who asked about the sandbox, with its name. So the URL is worth what that key is worth
// when it is used, and no longer. The key acts for the user for whom it acted then, whatever the client of the URL says.

const (
	signatureParam, expirationParam = "signature", "signature_expiration"
	signaturePrefix                 = "v1_"
	onBehalfHeader                  = "On-Behalf-Of"
	// maxTokens bounds those that are remembered of a sandbox: who asked about it last.
	maxTokens = 4
)

// admit finds the sandbox and the key that a signed URL stands for, and puts both where every request has them. The signature
// goes away, so that another server that answers does not look for it. What is not good stays, for badSignature.
func (a *Adapter) admit(r *http.Request) {
	if r.URL.Path != filesPath {
		return
	}
	v := r.URL.Query()
	if !v.Has(signatureParam) {
		return
	}
	for _, name := range []string{sandboxHeader, "X-API-Key", "Authorization", onBehalfHeader} {
		r.Header.Del(name)
	}
	operation := "read"
	if r.Method == http.MethodPost {
		operation = "write"
	}
	if expired(v) || len(v.Get("path")) > maxPath || len(v.Get("username")) > maxPath {
		return
	}
	var thread string
	var by signer
	signature := v.Get(signatureParam)
	if !a.guesses.Look(exchange.Source(r), signature, func() (ok bool) {
		thread, by, ok = a.known.signed(v.Get("path")+":"+operation+":"+v.Get("username")+":", v.Get(expirationParam), signature)
		return ok
	}) {
		return
	}
	r.Header.Set(sandboxHeader, thread)
	if key := credential(by.token); key != "" {
		r.Header.Set("X-API-Key", key)
	}
	if by.onBehalfOf != "" {
		r.Header.Set(onBehalfHeader, by.onBehalfOf)
	}
	v.Del(signatureParam)
	v.Del(expirationParam)
	u := *r.URL
	u.RawQuery = v.Encode()
	r.URL = &u
}

// expired reports whether the time of a signed URL is over, or is no time. One without lasts as long as its sandbox.
func expired(v url.Values) bool {
	if !v.Has(expirationParam) {
		return false
	}
	at, err := strconv.ParseInt(v.Get(expirationParam), 10, 64)
	return err != nil || time.Now().Unix() > at
}

// badSignature says why a signed URL is refused, in E2B's words.
func badSignature(v url.Values) error {
	if expired(v) {
		return sandbox.Errorf(sandbox.Unauthorized, "signature is already expired")
	}
	return sandbox.Errorf(sandbox.Unauthorized, "invalid signature")
}

// signer is who asked about a sandbox: what its SDK signs with, and the user for whom its key acted then; "": the key's own.
type signer struct{ token, onBehalfOf string }

// signed finds the sandbox with a token by which a signature is good, and who has that token. Only sandboxes that clients asked
// this server about are found. They differ in the end of what is signed, so that its head counts once for all. A signature that is
// good for sandboxes of two users, for whom one key acts, is good for neither.
func (k *knownSandboxes) signed(head, expiration, signature string) (thread string, by signer, ok bool) {
	encoded, ok := strings.CutPrefix(signature, signaturePrefix)
	want, err := base64.RawStdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(want) != sha256.Size {
		return "", by, false
	}
	if expiration != "" {
		expiration = ":" + expiration
	}
	begun := sha256.New()
	_, _ = begun.Write([]byte(head)) // never fails
	state, err := begun.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		return "", by, false
	}
	found := 0
	for t, signers := range k.signers() {
		for _, s := range signers {
			h := sha256.New()
			_ = h.(encoding.BinaryUnmarshaler).UnmarshalBinary(state) // it is ours
			_, _ = h.Write([]byte(s.token + expiration))
			if subtle.ConstantTimeCompare(h.Sum(nil), want) == 1 {
				thread, by = t.ID, s
				found++
			}
		}
	}
	return thread, by, found == 1
}

// signers are those of all sandboxes that are known.
func (k *knownSandboxes) signers() map[sandbox.Thread][]signer {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make(map[sandbox.Thread][]signer, len(k.by))
	for t, s := range k.by {
		out[t] = slices.Clone(s.signers)
	}
	return out
}

// remember notes who asked about the sandbox. The caller holds mu.
func (s *known) remember(q request) {
	by := signer{token: q.token}
	if q.caller.OnBehalf() {
		by.onBehalfOf = q.caller.User
	}
	if q.token == "" || slices.Contains(s.signers, by) {
		return
	}
	s.signers = append(s.signers, by)
	if len(s.signers) > maxTokens {
		s.signers = slices.Delete(s.signers, 0, 1)
	}
}
