// Package sink sends audit records to where security teams keep theirs: a webhook, or syslog.
package sink

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/platform/webhook"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/egress"
)

// Webhook posts batches of records, a JSON record a line, signed (package webhook) under the id of the first. Every 2xx
// takes the batch.
type Webhook struct {
	url    string
	secret []byte
	client *http.Client
}

// NewWebhook makes one. It reaches public addresses, and those in allowed; only those of allowed may be http://. Invalid:
// an address that is none.
func NewWebhook(address string, secret []byte, allowed []netip.Prefix) (*Webhook, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || len(allowed) == 0) {
		return nil, sandbox.Errorf(sandbox.Invalid, "the audit webhook is to be https://host/path (http:// only with audit.webhook_addresses)")
	}
	if len(secret) < 16 {
		return nil, sandbox.Errorf(sandbox.Invalid, "the secret of the audit webhook has %d bytes, at least 16", len(secret))
	}
	// No proxy of the environment: it would connect in our place, to what we refuse.
	tr := &http.Transport{DialContext: egress.PublicDialer(allowed).DialContext, TLSHandshakeTimeout: 10 * time.Second, MaxIdleConns: 2, IdleConnTimeout: time.Minute}
	return &Webhook{address, secret, &http.Client{Transport: tr, CheckRedirect: webhook.StayHere}}, nil
}

// Name is the sink's.
func (*Webhook) Name() string { return "webhook" }

// Close releases kept connections.
func (w *Webhook) Close() error {
	w.client.CloseIdleConnections()
	return nil
}

// Reach asks for the address's head, and reports whether a server answers, whatever the answer is: only a record would show
// whether records are taken. The error does not name the address.
func (w *Webhook) Reach(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, w.url, nil)
	if err != nil {
		return errAddress
	}
	res, err := w.client.Do(req)
	if err != nil {
		return unanswered(err)
	}
	return res.Body.Close()
}

var errAddress = sandbox.Errorf(sandbox.Invalid, "the address of the audit webhook cannot be used")

// unanswered is the error of a request without an answer. Its cause has lost the address, which may hold a secret.
func unanswered(err error) error {
	if egress.Refused(err) {
		return sandbox.Errorf(sandbox.Forbidden, "the audit webhook has an address that is not on the public internet; audit.webhook_addresses may allow it")
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return sandbox.Wrap(sandbox.Unavailable, err, "the audit webhook does not answer")
}

// Send posts a batch. An error never names the address: it may hold a secret.
func (w *Webhook) Send(ctx context.Context, entries []audit.Entry) error {
	var body bytes.Buffer
	for _, e := range entries {
		body.Write(e.Line)
		body.WriteByte('\n')
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body.Bytes()))
	if err != nil {
		return errAddress
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	webhook.Sign(req.Header, w.secret, entries[0].ID, time.Now(), body.Bytes())
	res, err := w.client.Do(req)
	if err != nil {
		return unanswered(err)
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10))
	if res.StatusCode/100 != 2 {
		return sandbox.Errorf(sandbox.Unavailable, "the audit webhook answers %d", res.StatusCode)
	}
	return nil
}
