package e2b

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// listQuery is what a list is asked for.
type listQuery struct {
	labels   map[string]string
	states   []string // none: all
	oldest   bool     // the oldest first, not the newest
	after    time.Time
	template string // "" is any
	limit    int
	last     string // place of the last one that the client has
}

const (
	maxList = 100
	// maxListed bounds the sandboxes of a user that are put in order for one page.
	maxListed = 10_000
	listStep  = 1000
)

func (a control) list(w http.ResponseWriter, r *http.Request, q request) error {
	lq, err := parseList(r.URL.Query())
	if err != nil {
		return err
	}
	if lq.template != "" {
		t, err := templates(a).named(lq.template)
		if err != nil { // nothing is made of it
			writeJSON(w, http.StatusOK, []sandboxView{})
			return nil
		}
		lq.template = t.Name
	}
	out, err := a.listed(r.Context(), q, &lq)
	if err != nil {
		return err
	}
	slices.SortFunc(out, func(x, y sandboxView) int {
		if lq.oldest {
			x, y = y, x
		}
		return strings.Compare(place(y), place(x))
	})
	if len(out) > lq.limit {
		out = out[:lq.limit]
		w.Header().Set("X-Next-Token", base64.RawURLEncoding.EncodeToString([]byte(place(out[lq.limit-1]))))
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// listed returns the sandboxes that fit and come behind the last one that the client has, in no order.
func (a control) listed(ctx context.Context, q request, lq *listQuery) ([]sandboxView, error) {
	out, seen := []sandboxView{}, 0
	for filter := (sandbox.ThreadFilter{Labels: lq.labels, Limit: listStep}); ; {
		list, err := a.o.Threads.Threads(ctx, q.caller, filter)
		if err != nil {
			return nil, err
		}
		for _, v := range list.Items {
			if over(v) {
				go a.known.end(request{caller: q.caller, thread: v.ID})
				continue
			}
			if s := a.describe(v); lq.fits(&s) {
				out = append(out, s)
			}
		}
		if seen += len(list.Items); list.Next == "" {
			return out, nil
		}
		if seen >= maxListed {
			return nil, sandbox.Errorf(sandbox.QuotaExceeded, "there are more than %d sandboxes: list them by metadata", maxListed)
		}
		filter.Cursor = list.Next
	}
}

// place orders sandboxes by their start.
func place(s sandboxView) string {
	return s.StartedAt.UTC().Format("2006-01-02T15:04:05.000000000Z") + " " + s.ID
}

func (lq *listQuery) fits(s *sandboxView) bool {
	switch {
	case len(lq.states) > 0 && !slices.Contains(lq.states, s.State),
		lq.template != "" && lq.template != s.Template,
		!lq.after.IsZero() && !s.StartedAt.After(lq.after):
		return false
	case lq.last == "":
		return true
	case lq.oldest:
		return place(*s) > lq.last
	}
	return place(*s) < lq.last
}

// parseList reads the query of a list. metadata is a query within it, whose names and values are escaped once more.
func parseList(v url.Values) (listQuery, error) {
	q := listQuery{labels: map[string]string{labelMade: "1"}, limit: maxList, template: v.Get("template")}
	bad := func(format string, args ...any) (listQuery, error) {
		return q, sandbox.Errorf(sandbox.Invalid, format, args...)
	}
	last, err := base64.RawURLEncoding.DecodeString(v.Get("nextToken"))
	if err != nil {
		return bad("nextToken: want the one of the page before")
	}
	q.last = string(last)
	switch v.Get("order") {
	case "", "desc":
	case "asc":
		q.oldest = true
	default:
		return bad("order: want asc or desc")
	}
	if text := v.Get("startedAfter"); text != "" {
		if q.after, err = time.Parse(time.RFC3339, text); err != nil {
			return bad("startedAfter: want a time such as 2026-01-02T15:04:05Z")
		}
	}
	if text := v.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxList {
			return bad("limit: want 1 to %d", maxList)
		}
		q.limit = n
	}
	for _, list := range v["state"] {
		for name := range strings.SplitSeq(list, ",") {
			if name != stateRunning && name != statePaused {
				return bad("state: want running or paused")
			}
			q.states = append(q.states, name)
		}
	}
	pairs, err := url.ParseQuery(v.Get("metadata"))
	if err != nil {
		return bad("metadata: want name=value&name=value, escaped")
	}
	for name, values := range pairs {
		name, err1 := url.QueryUnescape(name)
		value, err2 := url.QueryUnescape(values[0])
		if err1 != nil || err2 != nil || strings.HasPrefix(name, labelPrefix) {
			return bad("metadata: want name=value&name=value, escaped")
		}
		q.labels[name] = value
	}
	return q, sandbox.CheckLabels(q.labels)
}
