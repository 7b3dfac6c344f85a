package inprocess

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// answerTime is how long an answer may take to be sent.
const answerTime = 2 * time.Minute

// Below answers what is at a prefix, or below it, by a mux, and all else by the API. It keeps the API's own paths from the
// mux, which would redirect paths that are not clean.
func Below(prefix string, mux *http.ServeMux, api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == prefix || strings.HasPrefix(r.URL.Path, prefix+"/") {
			mux.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
}

// Write answers with a value as JSON.
func Write(w http.ResponseWriter, status int, v any) {
	// The deadline of the request before, on the same connection, may have passed.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime)) // fails where there is no connection
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone when this fails
}

// Reason is what a caller is told of an error, and with which status. A refusal of the API keeps its own, and its Retry-After.
func Reason(w http.ResponseWriter, err error) (status int, code, detail string) {
	var refused *Refusal
	if errors.As(err, &refused) {
		if refused.RetryAfter != "" {
			w.Header().Set("Retry-After", refused.RetryAfter)
		}
		return refused.Status, refused.Code, refused.Detail
	}
	status = sandbox.HTTPStatus(err)
	if status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "5") // requests of others end soon
	}
	if status == http.StatusInternalServerError {
		return status, string(sandbox.Internal), "the server failed; its log says why"
	}
	var own *sandbox.Error
	if errors.As(err, &own) {
		return status, string(sandbox.KindOf(err)), own.Detail
	}
	return status, string(sandbox.KindOf(err)), err.Error()
}
