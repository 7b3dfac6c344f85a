package e2b

import (
	"encoding/hex"
	"net/http"
	"strings"
)

// keyPrefix begins a key of E2B; hex digits follow, which the SDKs check.
const keyPrefix = "e2b_"

// The headers in which the SDKs send what we sent them as token of the sandbox, which is the key itself.
var tokenHeaders = []string{"X-Access-Token", "E2b-Traffic-Access-Token"}

// userHeader is where the user's name of Basic credentials goes.
const userHeader = "Skerry-E2b-User"

// prepare puts the credential of a request into X-API-Key, as our own, and takes away what means something else here:
// the daemon of E2B reads the user's name in Basic credentials.
func (a *Adapter) prepare(r *http.Request) {
	prepareHeader(r)
	a.admit(r)
}

func prepareHeader(r *http.Request) {
	h := r.Header
	if user, _, ok := r.BasicAuth(); ok {
		h.Set(userHeader, user)
		h.Del("Authorization")
	}
	key := h.Get("X-API-Key")
	for _, name := range tokenHeaders {
		if key == "" {
			key = h.Get(name)
		}
		h.Del(name)
	}
	h.Del("X-API-Key")
	if key = credential(key); key != "" {
		h.Set("X-API-Key", key)
	}
}

// credential reads a key: e2b_ and the hex digits of one of ours, or of a token; "" for e2b_ and zeros, which is how a
// client says that it has none. Any other text is the key itself. In the token of a sandbox the sandbox's name follows.
func credential(key string) string {
	digits, ok := strings.CutPrefix(key, keyPrefix)
	if !ok {
		return key
	}
	digits, _, _ = strings.Cut(digits, tokenOf)
	if strings.Trim(digits, "0") == "" {
		return ""
	}
	plain, err := hex.DecodeString(digits)
	if err != nil {
		return key
	}
	for _, b := range plain {
		if b <= ' ' || b > '~' {
			return key
		}
	}
	return string(plain)
}

// tokenOf comes before the name of the sandbox in its token.
const tokenOf = "."

// token is what the SDK is told to send with requests to the sandbox: the credential that this request came with. The name of the
// sandbox makes it another one for each, and with it all that an SDK signs.
func token(r *http.Request, thread string) string {
	key := r.Header.Get("X-API-Key")
	if key == "" {
		_, key, _ = strings.Cut(r.Header.Get("Authorization"), " ")
	}
	digits := hex.EncodeToString([]byte(key))
	if key == "" {
		digits = "00"
	}
	return keyPrefix + digits + tokenOf + thread
}
