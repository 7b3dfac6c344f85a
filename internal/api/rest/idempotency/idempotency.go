package idempotency

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/skerry-sandbox/skerry/internal/api/rest/eventstream"
	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/problem"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Bounds of remembered requests.
const (
	maxIdempotencyKey  = 255
	MaxRememberedBytes = 700 << 10 // of an answer; of a larger one only the fact is kept
	rememberTimeout    = 5 * time.Second
	MaxRetryAge        = 2 * time.Hour // of what Idempotency-Age may say
	// An idempotent request goes on when its client goes away, so that the retry finds its answer.
	idempotentTimeout = sandbox.MaxExecTimeout + sandbox.MaxApprovalWait + 5*time.Minute
)

// Memory remembers the answers to requests with an Idempotency-Key for 24 hours.
type Memory interface {
	// Begin claims key for a request whose method, path and body have the hash fingerprint. age is how long
	// ago a retry was first sent. first: go on and call Finish. Else answer is the answer to the first
	// request. The error is sandbox.KeyConflict when that request still runs or its outcome is unknown, and
	// Invalid when it had another fingerprint.
	Begin(ctx context.Context, o sandbox.Owner, key, fingerprint string, age time.Duration) (first bool, answer []byte, err error)
	// Finish stores the answer; a nil answer frees the key.
	Finish(ctx context.Context, o sandbox.Owner, key string, answer []byte) error
}

// Handler answers retries.
type Handler struct {
	Memory Memory // nil: the header Idempotency-Key is ignored
	Log    *slog.Logger
}

// remembered is an answer as it is stored.
type remembered struct {
	Status int         `json:"status"`
	Header http.Header `json:"header"`
	Body   []byte      `json:"body"`
}

// Handle answers a POST whose Idempotency-Key was seen before with the first answer. Streams
// are not remembered.
func (h *Handler) Handle(c *gin.Context) {
	r := c.Request
	key := r.Header.Get(sandbox.KeyHeader)
	if key == "" || r.Method != http.MethodPost || h.Memory == nil || eventstream.Wanted(r) {
		return
	}
	if p := h.onlyOnce(c, key); p != nil {
		problem.Write(c.Writer, p)
		c.Abort()
	}
}

func (h *Handler) onlyOnce(c *gin.Context, key string) *problem.Problem {
	r, ctx := c.Request, c.Request.Context()
	if !plainKey(key) {
		detail := "use 1 to 255 printable ASCII characters"
		return problem.New(sandbox.Invalid, sandbox.KeyHeader+": "+detail, problem.FieldError{Field: sandbox.KeyHeader, Detail: detail})
	}
	body, p := readAll(r)
	if p != nil {
		return p
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	owner := exchange.CallerOf(ctx).Owner
	age, p := retryAge(r)
	if p != nil {
		return p
	}
	first, answer, err := h.Memory.Begin(ctx, owner, key, fingerprint(r, body, exchange.CallerOf(ctx)), age)
	if err != nil {
		p := exchange.Problem(ctx, err)
		if len(p.Errors) == 1 && p.Errors[0].Detail == sandbox.KeyRunning {
			p.RetryAfter(1)
		}
		return p
	}
	if !first {
		c.Abort()
		return replay(c.Writer, answer)
	}
	var keep []byte
	defer func() {
		// Also when the handler panics: the key would else stay taken for a day.
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), rememberTimeout)
		defer cancel()
		if err := h.Memory.Finish(end, owner, key, keep); err != nil {
			h.Log.Warn("an answer could not be remembered", "request_id", exchange.Of(ctx).ID, "error", err)
		}
	}()
	run, cancel := context.WithTimeout(context.WithoutCancel(ctx), idempotentTimeout)
	defer cancel()
	c.Request = r.WithContext(run)
	exchange.Of(ctx).Request = c.Request
	rec := &recorder{ResponseWriter: c.Writer}
	c.Writer = rec
	c.Next()
	keep = rec.answer(exchange.Of(ctx).Begun)
	return nil
}

// retryAge reads how long ago the client sent a request that it sends again; 0: it does not say.
func retryAge(r *http.Request) (time.Duration, *problem.Problem) {
	text := r.Header.Get(exchange.KeyAgeHeader)
	if text == "" {
		return 0, nil
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || !(seconds > 0 && seconds <= MaxRetryAge.Seconds()) {
		detail := fmt.Sprintf("use the seconds since the request was first sent, more than 0 and at most %d", int(MaxRetryAge.Seconds()))
		return 0, problem.New(sandbox.Invalid, exchange.KeyAgeHeader+": "+detail, problem.FieldError{Field: exchange.KeyAgeHeader, Detail: detail})
	}
	return max(time.Duration(seconds*float64(time.Second)), 1), nil
}

func replay(w http.ResponseWriter, answer []byte) *problem.Problem {
	var r remembered
	if err := json.Unmarshal(answer, &r); err != nil || r.Status == 0 {
		return problem.New(sandbox.Unavailable, "the first answer cannot be read back; use another Idempotency-Key")
	}
	for k, v := range r.Header {
		w.Header()[k] = v
	}
	w.Header().Set("Idempotent-Replayed", "true")
	w.WriteHeader(r.Status)
	_, _ = w.Write(r.Body) // the client is gone when this fails
	return nil
}

func plainKey(key string) bool {
	if len(key) > maxIdempotencyKey {
		return false
	}
	for i := range len(key) {
		if key[i] < 0x21 || key[i] > 0x7e {
			return false
		}
	}
	return true
}

// readAll reads a body of at most route.MaxJSONBytes.
func readAll(r *http.Request) ([]byte, *problem.Problem) {
	if r.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, route.MaxJSONBytes+1))
	switch {
	case exchange.Slow(err):
		return nil, problem.New(sandbox.Timeout, "the body came too slowly").WithStatus(http.StatusRequestTimeout)
	case err != nil:
		return nil, problem.New(sandbox.Invalid, "the body ended too early")
	case len(body) > route.MaxJSONBytes:
		return nil, problem.New(sandbox.Invalid, "the body is larger than 32 MiB").WithStatus(http.StatusRequestEntityTooLarge)
	}
	return body, nil
}

// fingerprint is the same for the same request of callers with the same capabilities. An answer can hold what only
// a capability lets its caller see, and another key of the user may lack that one. Roles and threads are checked
// before, by the route. Without capabilities it is what it always was: answers outlive a server.
func fingerprint(r *http.Request, body []byte, c sandbox.Caller) string {
	sum := sha256.New()
	for _, part := range []string{r.Method, r.URL.RequestURI(), r.Header.Get("Content-Type")} {
		_, _ = io.WriteString(sum, part+"\n") // a hash never fails
	}
	_, _ = sum.Write(body)
	for _, capability := range c.Capabilities {
		_, _ = io.WriteString(sum, "\x00"+capability) // JSON and forms have no NUL
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// recorder keeps a copy of what a handler answers.
type recorder struct {
	gin.ResponseWriter
	body bytes.Buffer
	over bool
}

func (r *recorder) Write(p []byte) (int, error) {
	r.copy(p)
	return r.ResponseWriter.Write(p)
}

func (r *recorder) WriteString(text string) (int, error) {
	r.copy([]byte(text))
	return r.ResponseWriter.WriteString(text)
}

func (r *recorder) copy(p []byte) {
	if r.over = r.over || r.body.Len()+len(p) > MaxRememberedBytes; !r.over {
		r.body.Write(p)
	}
}

// answer is what to remember, or nil: an answer that says "try again" is not the result. Of an answer that
// is too large, or has a secret in it, only the fact is remembered: doing it again would be worse. The same
// holds when something was begun, and then the server, or what it needs, failed.
func (r *recorder) answer(begun string) []byte {
	status := r.Status()
	again := status >= http.StatusInternalServerError && status != http.StatusNotImplemented || status == http.StatusRequestTimeout || status == http.StatusTooManyRequests || status == 499
	if again && begun == "" {
		return nil
	}
	kept := remembered{Status: status, Header: http.Header{}, Body: r.body.Bytes()}
	for k, v := range r.Header() {
		if k == "Content-Type" || k == "Location" || k == "Etag" {
			kept.Header[k] = v
		}
	}
	if r.over || r.Header().Get("Cache-Control") == exchange.NoStore {
		kept = keyConflict(sandbox.KeyDone, "the request with this Idempotency-Key was done before; its answer is too large, or too secret, to be kept")
	} else if again {
		kept = keyConflict(sandbox.KeyUnknown, fmt.Sprintf("%s began, and the server failed to tell how it ended (it answered %d). Look at its effects, or use another Idempotency-Key to do it again", begun, status))
	}
	out, err := json.Marshal(kept)
	if err != nil {
		return nil
	}
	return out
}

// keyConflict is what the retries of a request are answered with whose own answer cannot be.
func keyConflict(what, detail string) remembered {
	p := problem.New(sandbox.Conflict, detail, problem.FieldError{Field: sandbox.KeyHeader, Detail: what})
	body, err := json.Marshal(p)
	if err != nil {
		body = nil // it cannot be: a problem is text
	}
	return remembered{Status: p.Status, Header: http.Header{"Content-Type": {problem.ContentType}}, Body: body}
}
