package skerry

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// AuditFilter says which records of the audit log are wanted. Its zero value: all that the caller may see.
type AuditFilter struct {
	Thread, User, Exec, Action, Tool, Outcome string
	Text                                      string // anywhere in the record
	Since, Until                              time.Time
}

func (f AuditFilter) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{
		"thread": f.Thread, "user": f.User, "exec": f.Exec, "action": f.Action, "tool": f.Tool, "outcome": f.Outcome, "q": f.Text,
	} {
		set(q, name, value)
	}
	for name, t := range map[string]time.Time{"since": f.Since, "until": f.Until} {
		if !t.IsZero() {
			q.Set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	return q
}

// Audit returns records, newest first.
func (c *Client) Audit(ctx context.Context, f AuditFilter) iter.Seq2[AuditRecord, error] {
	return pages[AuditRecord](ctx, c, "/api/audit", f.query())
}

// AuditSummary counts the records that fit a filter, by time and by the values of some fields. buckets is the most
// spans of time, 1 to 500; 0 is 60.
func (c *Client) AuditSummary(ctx context.Context, f AuditFilter, buckets int) (*AuditSummary, error) {
	q := f.query()
	if buckets != 0 {
		q.Set("buckets", strconv.Itoa(buckets))
	}
	return get[AuditSummary](ctx, c, Request{Method: http.MethodGet, Path: "/api/audit/summary", Query: q})
}

// VerifyAudit asks the server whether its audit log is whole.
func (c *Client) VerifyAudit(ctx context.Context) (*AuditVerification, error) {
	return get[AuditVerification](ctx, c, Request{Method: http.MethodPost, Path: "/api/audit/verify", Body: struct{}{}})
}

// AuditEvent is a record as it came.
type AuditEvent struct {
	ID     string // FollowAudit goes on behind it
	Record json.RawMessage
}

// Decode reads the record.
func (e AuditEvent) Decode() (r AuditRecord, err error) { return r, json.Unmarshal(e.Record, &r) }

// FollowAudit returns records as they come: those behind the event with the id after, or from now on
// when it is "". A connection that is lost is made again, and nothing is missed. It ends with ctx, or with
// an error.
func (c *Client) FollowAudit(ctx context.Context, f AuditFilter, after string) iter.Seq2[AuditEvent, error] {
	return c.followAudit(ctx, f.query(), after)
}

func (c *Client) followAudit(ctx context.Context, q url.Values, after string) iter.Seq2[AuditEvent, error] {
	return func(yield func(AuditEvent, error) bool) {
		for heard := time.Now(); ; {
			stopped, err := c.auditConnection(ctx, q, &after, func(e AuditEvent) bool {
				heard = time.Now()
				return yield(e, nil)
			})
			if stopped {
				return
			}
			if ctx.Err() != nil || settled(err) || time.Since(heard) > max(auditTakeUpFor, c.o.Patience) {
				yield(AuditEvent{}, err)
				return
			}
			sleep(ctx, takeUpPause)
		}
	}
}

func (c *Client) auditConnection(ctx context.Context, q url.Values, after *string, take func(AuditEvent) bool) (stopped bool, err error) {
	h := streamed()
	if *after != "" {
		h.Set(headerLastEventID, *after)
	}
	res, err := c.open(ctx, Request{Method: http.MethodGet, Path: "/api/audit/stream", Query: q, Header: h}, c.o.Silence)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	err = readMessages(res.Body, func(m message) (bool, error) {
		if m.event == eventError {
			return false, streamError(m.data)
		}
		*after = m.id
		stopped = !take(AuditEvent{ID: m.id, Record: json.RawMessage(m.data)})
		return !stopped, nil
	})
	return stopped, err
}

// Approvals lists calls that wait, or waited, for a person; state "" is any.
func (c *Client) Approvals(ctx context.Context, state string) iter.Seq2[Approval, error] {
	q := url.Values{}
	set(q, "state", state)
	return pages[Approval](ctx, c, "/api/approvals", q)
}

// Decide lets a call through, or denies it.
func (c *Client) Decide(ctx context.Context, id string, d Decision) (*Approval, error) {
	return get[Approval](ctx, c, Request{Method: http.MethodPost, Path: "/api/approvals/" + url.PathEscape(id), Body: d})
}
