package approval

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/platform/retry"
	"github.com/skerry-sandbox/skerry/internal/platform/webhook"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// Webhook is where requests are announced by POST, signed (package webhook). The answer may be the decision.
// It is believed only with a signature of the same kind, which covers the id of the request. So an answer to
// another request, or from another time, is useless.
type Webhook struct {
	URL    string
	Secret []byte
	Client *http.Client // nil: a client that follows no redirects
}

const (
	deliveryTime = 30 * time.Second // of one try
	firstPause   = time.Second      // between tries; doubled each time
	longestPause = time.Minute
	maxVerdict   = 64 << 10 // bytes of an answer
)

var noRedirects = &http.Client{Timeout: deliveryTime, CheckRedirect: webhook.StayHere}

// delivery is the body of a POST.
type delivery struct {
	Type      string           `json:"type"` // "approval.requested"
	Timestamp time.Time        `json:"timestamp"`
	Data      sandbox.Approval `json:"data"`
}

// answer is a decision in an answer.
type answer struct {
	Decision string                `json:"decision"` // "approve", "deny" or ""
	Scope    sandbox.ApprovalScope `json:"scope"`
	Reason   string                `json:"reason"`
	By       string                `json:"by"` // who decided, for the record
}

// deliver tells the webhook of a request until it has heard, or the request is over.
func (s *Approvals) deliver(a store.ApprovalRecord) {
	body, err := json.Marshal(delivery{Type: "approval.requested", Timestamp: a.CreatedAt, Data: a.Approval})
	if err != nil {
		s.o.Log.Error("webhook: a request for approval cannot be written", "id", a.ID, "error", err)
		return
	}
	ctx, cancel := context.WithDeadline(s.ctx, a.ExpiresAt)
	defer cancel()
	pauses := retry.Doubling(firstPause, longestPause)
	for {
		again, err := s.deliverOnce(ctx, a, body)
		if err == nil {
			return
		}
		s.o.Log.Warn("webhook: a request for approval is not told", "id", a.ID, "again", again, "error", err)
		if !again {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pauses.NextBackOff()):
		}
		if now, err := s.o.Store.Approval(ctx, a.Tenant, a.ID); err == nil && now.State != sandbox.ApprovalPending {
			return
		}
	}
}

// deliverOnce tries once, and takes the decision in the answer. again: it is worth another try.
func (s *Approvals) deliverOnce(ctx context.Context, a store.ApprovalRecord, body []byte) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, deliveryTime)
	defer cancel()
	got, again, err := s.o.Webhook.post(ctx, a.ID, body)
	if err != nil {
		return again, err
	}
	return false, s.applyReply(ctx, a, got)
}

// applyReply takes the decision in an answer, if there is one.
func (s *Approvals) applyReply(ctx context.Context, a store.ApprovalRecord, got reply) error {
	v, err := s.o.Webhook.decision(a.ID, got)
	if err != nil {
		rec := requestRecord(a)
		rec.Action, rec.Outcome, rec.Detail = audit.ActionAuthRefused, "denied", "the webhook's decision on "+a.ID+": "+err.Error()
		_, e := s.journal.write(ctx, rec)
		return errors.Join(err, e)
	}
	if v.Decision == "" {
		return nil // it has heard, and a person decides later
	}
	c := sandbox.Caller{Owner: sandbox.Owner{Tenant: a.Tenant, User: "webhook"}}
	if by := cut(v.By); by != "" {
		c.User = "webhook: " + by
	}
	_, err = s.decide(ctx, c, a.ID, sandbox.ApprovalVerdict{Approve: v.Decision == "approve", Scope: v.Scope, Reason: v.Reason}, "webhook")
	if sandbox.KindOf(err) == sandbox.Conflict { // another decision was faster
		return nil
	}
	return err
}

// reply is what the webhook answered.
type reply struct {
	header http.Header
	text   []byte
}

// post sends one signed request. again: it is worth another try.
func (w *Webhook) post(ctx context.Context, id string, body []byte) (got reply, again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return reply{}, false, err
	}
	req.Header.Set("Content-Type", "application/json")
	webhook.Sign(req.Header, w.Secret, id, time.Now(), body)
	client := w.Client
	if client == nil {
		client = noRedirects
	}
	res, err := client.Do(req)
	if err != nil {
		return reply{}, true, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxVerdict+1))
	switch {
	case err != nil:
		return reply{}, true, err
	case res.StatusCode == http.StatusTooManyRequests || res.StatusCode >= 500:
		return reply{}, true, fmt.Errorf("it answered %s", res.Status)
	case res.StatusCode >= 300:
		return reply{}, false, fmt.Errorf("it answered %s", res.Status)
	case len(text) > maxVerdict:
		return reply{}, false, fmt.Errorf("its answer has more than %d bytes", maxVerdict)
	}
	return reply{header: res.Header, text: text}, false, nil
}

// decision reads what the webhook decided of a request; none when it only heard. An error: the decision is not believed.
func (w *Webhook) decision(id string, got reply) (answer, error) {
	var v answer
	if json.Unmarshal(got.text, &v) != nil || v.Decision == "" {
		return answer{}, nil
	}
	err := webhook.Verify(got.header, w.Secret, id, time.Now(), got.text)
	if err == nil && v.Decision != "approve" && v.Decision != "deny" {
		err = fmt.Errorf("decision: %.40q is not approve or deny", v.Decision)
	}
	return v, err
}
