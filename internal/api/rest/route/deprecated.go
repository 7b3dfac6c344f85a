package route

import (
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gin-gonic/gin"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Deprecation says that a route goes, and what takes its place.
type Deprecation struct {
	Since   time.Time // the day of the release that says so
	Sunset  time.Time // the first day on which a release may be without it; zero: it is not known yet
	Instead string    // the successor, for example "POST /api/threads/{thread}/exec"
	id      string    // of the operation
}

// Deprecated returns the rule of a route that goes. The OpenAPI document, the headers of its answers and the log follow.
func (r Rule) Deprecated(d Deprecation) Rule {
	r.gone = &d
	return r
}

// text is for people: the document and the log have it.
func (d Deprecation) text() string {
	text := fmt.Sprintf("Deprecated since %s: use %s.", d.Since.UTC().Format(time.DateOnly), d.Instead)
	if !d.Sunset.IsZero() {
		text += fmt.Sprintf(" It may be gone from %s on.", d.Sunset.UTC().Format(time.DateOnly))
	}
	return text
}

// describe says in the document that a route goes.
func (d *Deprecation) describe(op huma.Operation) huma.Operation {
	if d == nil {
		return op
	}
	op.Deprecated = true
	if op.Description != "" {
		op.Description += "\n\n"
	}
	op.Description += d.text()
	return op
}

// maxTold bounds what is remembered of a day. Callers beyond it have the headers, and no line in the log.
const maxTold = 10_000

// Deprecations tells callers of routes that go: in the headers of each answer, and once a day and caller in the log.
type Deprecations struct {
	table *Table
	log   *slog.Logger
	now   func() time.Time

	mu   sync.Mutex
	day  string
	told map[told]bool
}

// told is a caller and a route. An agent's key that acts for many users is one caller.
type told struct{ tenant, actor, route string }

// NewDeprecations warns of the routes of a table.
func NewDeprecations(t *Table, log *slog.Logger) *Deprecations {
	return &Deprecations{table: t, log: log, now: time.Now}
}

// Warn comes after the caller is known, on the server that answers.
func (d *Deprecations) Warn(c *gin.Context) {
	rule, _ := d.table.Rule(c)
	gone := rule.gone
	if gone == nil {
		return
	}
	h := c.Writer.Header()
	h.Set("Deprecation", "@"+strconv.FormatInt(gone.Since.Unix(), 10)) // RFC 9745
	if !gone.Sunset.IsZero() {
		h.Set("Sunset", gone.Sunset.UTC().Format(http.TimeFormat)) // RFC 8594
	}
	h.Add("Link", "</docs#"+gone.id+`>; rel="deprecation"; type="text/html"`)
	ctx := c.Request.Context()
	caller := exchange.CallerOf(ctx)
	if d.first(caller, gone.id) {
		d.log.WarnContext(ctx, "a deprecated route is used", slog.String("method", c.Request.Method), slog.String("route", c.FullPath()), slog.String("detail", gone.text()),
			slog.String("tenant", caller.Tenant), slog.String("actor", caller.Actor), slog.String("user_agent", caller.UserAgent))
	}
}

// first reports whether a caller uses a route for the first time today.
func (d *Deprecations) first(c sandbox.Caller, route string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if day := d.now().UTC().Format(time.DateOnly); day != d.day {
		d.day, d.told = day, map[told]bool{}
	}
	who := told{c.Tenant, c.Actor, route}
	if d.told[who] || len(d.told) == maxTold {
		return false
	}
	d.told[who] = true
	return true
}
