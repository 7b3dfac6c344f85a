// Package webhook signs what the server posts to others, and checks what they sign, as standardwebhooks.com says: an
// HMAC-SHA256 over "ID.TIMESTAMP.BODY", in three headers.
package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Headers of a signed message.
const (
	HeaderID        = "Webhook-Id"
	HeaderTime      = "Webhook-Timestamp" // Unix seconds
	HeaderSignature = "Webhook-Signature" // "v1," and base64; several, with spaces between, while a secret is replaced
)

// MaxSkew is how far the clocks of both sides may be apart.
const MaxSkew = 5 * time.Minute

// Sign puts the headers of a message that goes out at a time.
func Sign(h http.Header, secret []byte, id string, at time.Time, body []byte) {
	stamp := strconv.FormatInt(at.Unix(), 10)
	h.Set(HeaderID, id)
	h.Set(HeaderTime, stamp)
	h.Set(HeaderSignature, signature(secret, id, stamp, body))
}

// Verify says what is wrong with the headers of a message that is to bear an id.
func Verify(h http.Header, secret []byte, id string, now time.Time, body []byte) error {
	if h.Get(HeaderID) != id {
		return fmt.Errorf("%s is not that of the request", HeaderID)
	}
	at, err := strconv.ParseInt(h.Get(HeaderTime), 10, 64)
	if err != nil || now.Sub(time.Unix(at, 0)).Abs() > MaxSkew {
		return fmt.Errorf("%s is not within %s of now", HeaderTime, MaxSkew)
	}
	want := signature(secret, id, h.Get(HeaderTime), body)
	for given := range strings.FieldsSeq(h.Get(HeaderSignature)) {
		if hmac.Equal([]byte(given), []byte(want)) {
			return nil
		}
	}
	return fmt.Errorf("%s is not one of the secret", HeaderSignature)
}

func signature(secret []byte, id, at string, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.%s.%s", id, at, body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// StayHere is the CheckRedirect of a client that takes a redirection for an answer: another address was not what the
// administrator named.
func StayHere(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
