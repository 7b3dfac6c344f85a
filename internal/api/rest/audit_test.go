package rest

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/rest/audits"
)

func follow(t *testing.T, ctx context.Context, url string, headers ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/api/audit/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range append([]string{"X-API-Key: ann"}, headers...) {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// TestAuditStream: records come with ids, from behind Last-Event-ID on, and only the caller's own.
func TestAuditStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	srv := httptest.NewServer(handler(t, w, func(o *Options) { o.Keys, o.Anonymous = w, nil }))
	t.Cleanup(srv.Close) // after the streams below are closed
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for after, want := range map[string]string{"": "1-0 r1 2-0 r2 3-0 r3", "2-0": "3-0 r3"} {
		headers := []string{}
		if after != "" {
			headers = append(headers, "Last-Event-ID: "+after)
		}
		res := follow(t, ctx, srv.URL, headers...)
		if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("%d %v", res.StatusCode, res.Header)
		}
		var got []string
		lines := bufio.NewScanner(res.Body)
		for lines.Scan() && !strings.HasPrefix(lines.Text(), ":") { // the first sign of life comes behind the records
			if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				got = append(got, id)
			}
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				if !strings.Contains(data, `"tenant":"acme","user":"ann"`) {
					t.Errorf("somebody else's: %s", data)
				}
				got = append(got, data[len(`{"id":"`):len(`{"id":"`)+2])
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("after %q: %v, want %s", after, got, want)
		}
		_ = res.Body.Close()
	}
	if res := follow(t, ctx, srv.URL, "Last-Event-ID: bad"); res.StatusCode != http.StatusBadRequest {
		t.Errorf("a bad id: %d", res.StatusCode)
	}
}

// TestAuditStreamPlaces: there are only so many, and a client that leaves frees its place.
func TestAuditStreamPlaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	srv := httptest.NewServer(handler(t, w, func(o *Options) { o.Keys, o.Anonymous = w, nil }))
	t.Cleanup(srv.Close) // after the streams below are closed
	ctx, cancel := context.WithCancel(t.Context())
	for i := range audits.MaxFollowers {
		if res := follow(t, ctx, srv.URL, "X-API-Key: root", fmt.Sprint("On-Behalf-Of: u", i/audits.MaxOwnFollowers)); res.StatusCode != 200 {
			t.Fatalf("%d", res.StatusCode)
		}
	}
	if res := follow(t, t.Context(), srv.URL); res.StatusCode != http.StatusTooManyRequests && res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one too many: %d", res.StatusCode)
	}
	cancel()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if res := follow(t, t.Context(), srv.URL); res.StatusCode == 200 {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("no place is given back: %d", res.StatusCode)
		}
	}
}

// TestAuditExport: all pages, in each format; an export that breaks off is not taken for whole.
func TestAuditExport(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.auditPages = 3
	h := handler(t, w, func(o *Options) { o.Keys, o.Anonymous = w, nil })
	rec := send(h, "GET", "/api/audit/export?format=csv&thread=main", "", "X-API-Key: ann")
	rows, err := csv.NewReader(rec.Body).ReadAll()
	if err != nil || len(rows) != 4 || rows[1][10] != "'=1+1" {
		t.Errorf("%d %v %v", rec.Code, rows, err)
	}
	if w.audited.Thread != "main" || w.audited.Tenant != "acme" || rec.Header().Get("Content-Disposition") == "" {
		t.Errorf("%+v %v", w.audited, rec.Header())
	}
	for _, format := range []string{"", "?format=ocsf"} {
		if lines := strings.Count(send(h, "GET", "/api/audit/export"+format, "", "X-API-Key: ann").Body.String(), "\n"); lines != 3 {
			t.Errorf("format %q: %d lines", format, lines)
		}
	}
	if rec := send(h, "GET", "/api/audit/export?format=xml", "", "X-API-Key: ann"); rec.Code/100 != 4 {
		t.Errorf("xml: %d", rec.Code)
	}
	if rec := send(h, "GET", "/api/audit/export?user=bob", "", "X-API-Key: bob"); rec.Code != 200 {
		t.Errorf("one's own: %d", rec.Code)
	}
	if rec := send(h, "GET", "/api/audit/export?user=ann", "", "X-API-Key: bob"); rec.Code != http.StatusForbidden {
		t.Errorf("somebody else's: %d", rec.Code)
	}
	w.err = errors.New("Redis went away")
	srv := httptest.NewServer(h)
	defer srv.Close()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/api/audit/export", nil)
	req.Header.Set("X-API-Key", "ann")
	res, err := http.DefaultClient.Do(req)
	if err == nil {
		_, err = bufio.NewReader(res.Body).WriteTo(new(strings.Builder))
		_ = res.Body.Close()
	}
	if err == nil {
		t.Error("an export that broke off looks whole")
	}
}

// TestAuditSummary: a caller counts what it may list, with the same filter; more spans of time than there are is an error.
func TestAuditSummary(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := handler(t, w, func(o *Options) { o.Keys, o.Anonymous = w, nil })
	body := decodeBody(t, send(h, "GET", "/api/audit/summary?tool=fs__read&outcome=denied&buckets=7&q=x&thread=main", "", "X-API-Key: ann"))
	if f := w.audited; f.Tenant != "acme" || f.User != "ann" || f.Tool != "fs__read" || f.Outcome != "denied" || f.Text != "x" || f.Thread != "main" || w.buckets != 7 {
		t.Errorf("%+v in %d", f, w.buckets)
	}
	if body["count"] != 3.0 || body["users"].(map[string]any)["values"].([]any)[0].(map[string]any)["value"] != "ann" {
		t.Errorf("%v", body)
	}
	send(h, "GET", "/api/audit/summary?user=bob", "", "X-API-Key: root")
	if f := w.audited; f.User != "bob" || w.buckets != 60 {
		t.Errorf("%+v in %d", f, w.buckets)
	}
	wantProblem(t, send(h, "GET", "/api/audit/summary?user=bob", "", "X-API-Key: ann"), 403, "forbidden")
	for _, query := range []string{"buckets=0", "buckets=501", "outcome=denid", "limit=3", "cursor=1"} {
		if rec := send(h, "GET", "/api/audit/summary?"+query, "", "X-API-Key: root"); rec.Code/100 != 4 {
			t.Errorf("%s: %d", query, rec.Code)
		}
	}
}

// TestAuditPageDescribed: the document has all that a page of records has.
func TestAuditPageDescribed(t *testing.T) {
	t.Parallel()
	doc := decodeBody(t, send(handler(t, newWorld(t)), "GET", "/openapi.json", ""))
	schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
	fields := schemas["AuditPage"].(map[string]any)["properties"].(map[string]any)
	for _, name := range []string{"items", "next_cursor", "partial"} {
		if fields[name] == nil {
			t.Errorf("no %s in %v", name, fields)
		}
	}
}
