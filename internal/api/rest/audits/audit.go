package audits

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"

	"github.com/skerry-sandbox/skerry/internal/api/rest/access"
	"github.com/skerry-sandbox/skerry/internal/api/rest/eventstream"
	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/audit/export"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Log is what the routes need of *audit.Log.
type Log interface {
	List(ctx context.Context, f audit.Filter) (items []audit.Record, next string, err error)
	// Follow calls emit with records as they come, from behind the cursor after on; "": from now on.
	Follow(ctx context.Context, f audit.Filter, after string, emit func(r audit.Record, cursor string) error) error
	Summarize(ctx context.Context, f audit.Filter, buckets int) (audit.Summary, error)
}

// Routes are the routes of the audit log.
type Routes struct {
	Audit     Log
	Proof     Proof // nil: the log is not verified here
	Access    *access.Authenticator
	Follows   *Followers
	Heartbeat time.Duration // of streams
	Log       *slog.Logger
}

// AuditFilter is what all that reads audit records can be asked for.
type AuditFilter struct {
	Thread  string    `query:"thread" maxLength:"128"`
	User    string    `query:"user" maxLength:"128" doc:"Administrators and auditors only, unless it is the caller"`
	Exec    string    `query:"exec" maxLength:"128"`
	Action  string    `query:"action" maxLength:"64"`
	Tool    string    `query:"tool" maxLength:"512"`
	Outcome string    `query:"outcome" maxLength:"64"`
	Since   time.Time `query:"since" doc:"RFC 3339"`
	Until   time.Time `query:"until" doc:"RFC 3339"`
	Text    string    `query:"q" maxLength:"200" doc:"Text that is anywhere in the record, whatever its case"`
}

type auditIn struct {
	AuditFilter
	Cursor string `query:"cursor" maxLength:"512"`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

// auditPage is a page of records. It has the fields of page as its own: huma leaves out of the document
// the fields of an embedded type that is not exported.
type auditPage struct {
	Items      []audit.Record `json:"items"`
	NextCursor string         `json:"next_cursor,omitempty" doc:"Send it as cursor to get the rest; not there at the end"`
	Partial    bool           `json:"partial,omitempty" doc:"The page is shorter than asked for because looking took long: next_cursor goes on"`
}

// Add adds the routes to api.
func (s Routes) Add(api *route.API) {
	proofRoutes{s.Proof}.add(api)
	route.Register(api, route.On(http.MethodGet, "/api/audit", "listAudit", route.TagAdmin, route.AuditReaders,
		"Audit records, newest first: the caller's own, or for administrators and auditors the tenant's"), s.listAudit)
	route.Register(api, route.On(http.MethodGet, "/api/audit/summary", "summarizeAudit", route.TagAdmin, route.AuditReaders,
		"How many audit records fit a filter: in all, by time, and by user, action, tool and outcome. It counts the newest first, for about half a second at most, and says when it did not reach all"), s.summarizeAudit)
	op := route.On(http.MethodGet, "/api/audit/stream", "streamAudit", route.TagAdmin, route.AuditReaders,
		"Audit records as they come (server-sent events); Last-Event-ID goes on behind an earlier one")
	op.Responses = map[string]*huma.Response{"200": {Description: "Events record, each with a record as data", Content: map[string]*huma.MediaType{"text/event-stream": {}}}, "default": api.ProblemResponse()}
	route.Register(api, op, s.streamAudit)
	op = route.On(http.MethodGet, "/api/audit/export", "exportAudit", route.TagAdmin, route.AuditReaders,
		"All audit records of a filter, newest first, as one download")
	op.Responses = map[string]*huma.Response{"200": {Description: "A record a line; a connection that breaks off means that not all came", Content: map[string]*huma.MediaType{"application/x-ndjson": {}, "text/csv": {}}}, "default": api.ProblemResponse()}
	route.Register(api, op, s.exportAudit)
}

// MaxFollowers is how many clients may follow or export at once.
const MaxFollowers = 64

// MaxOwnFollowers leaves places for others: agents read their own records, and must not keep auditors out.
const MaxOwnFollowers = 16

// Followers counts those who follow or export.
type Followers struct{ places eventstream.Places }

// Enter takes a place of those who follow or export.
func (f *Followers) Enter(o sandbox.Owner) (release func(), err error) {
	return f.places.Enter(o, func(own, all int) error {
		switch {
		case own >= MaxOwnFollowers:
			return sandbox.TooManyCalls("this user follows or exports the audit log %d times already: end one first", MaxOwnFollowers)
		case all >= MaxFollowers:
			return sandbox.Errorf(sandbox.CapacityExceeded, "%d clients follow or export the audit log of this server already; try again later", MaxFollowers)
		}
		return nil
	})
}

func (s Routes) streamAudit(ctx context.Context, in *struct {
	AuditFilter
	LastEventID string `header:"Last-Event-ID" maxLength:"128" doc:"The id of the last event that was seen; without it the stream begins now"`
},
) (*route.Written, error) {
	f, err := in.filter(exchange.CallerOf(ctx))
	if err != nil {
		return nil, err
	}
	release, err := s.Follows.Enter(exchange.CallerOf(ctx).Owner)
	if err != nil {
		return nil, err
	}
	return &route.Written{Body: func(c huma.Context) {
		defer release()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		x := exchange.Of(ctx)
		defer s.Access.Watch(x.Request, x.Caller, cancel)()
		a := auditStream{eventstream.New(x, humagin.Unwrap(c).Writer, s.Heartbeat)}
		var alive sync.WaitGroup
		alive.Go(func() { a.KeepAlive(ctx, cancel) })
		err := s.Audit.Follow(ctx, f, in.LastEventID, a.emit)
		cancel()
		alive.Wait()
		a.End(ctx, err)
	}}, nil
}

// auditStream writes records as server-sent events.
type auditStream struct{ *eventstream.Stream }

func (a auditStream) emit(r audit.Record, cursor string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return a.Send(fmt.Appendf(nil, "id: %s\nevent: %s\ndata: %s\n\n", cursor, eventstream.EventRecord, text))
}

func (s Routes) exportAudit(ctx context.Context, in *struct {
	AuditFilter
	Format string `query:"format" enum:"jsonl,ocsf,csv" default:"jsonl" doc:"Records as they are, events of OCSF, or a table"`
},
) (*route.Written, error) {
	f, err := in.filter(exchange.CallerOf(ctx))
	if err != nil {
		return nil, err
	}
	f.Limit = audit.MaxListed
	release, err := s.Follows.Enter(exchange.CallerOf(ctx).Owner)
	if err != nil {
		return nil, err
	}
	items, next, err := s.Audit.List(ctx, f) // what can go wrong goes wrong here, as a rule
	if err != nil {
		release()
		return nil, err
	}
	return &route.Written{Body: func(c huma.Context) {
		defer release()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		x := exchange.Of(ctx)
		defer s.Access.Watch(x.Request, x.Caller, cancel)()
		w := humagin.Unwrap(c).Writer
		w.Header().Set("Content-Type", export.ContentType(in.Format))
		w.Header().Set("Content-Disposition", `attachment; filename="audit.`+strings.Replace(in.Format, "ocsf", "ocsf.jsonl", 1)+`"`)
		w.Header().Set("Cache-Control", exchange.NoStore)
		if err := s.export(ctx, w, f, in.Format, items, next); err != nil {
			s.Log.Warn("export of audit records broken off", "request_id", x.ID, "error", err)
			panic(http.ErrAbortHandler) // the client is not to take it for all
		}
	}}, nil
}

// export writes page after page; it holds one.
func (s Routes) export(ctx context.Context, w http.ResponseWriter, f audit.Filter, format string, items []audit.Record, next string) error {
	out, err := export.New(format, w)
	if err != nil {
		return err
	}
	for {
		for _, r := range items {
			if err := out.Write(r); err != nil {
				return err
			}
		}
		if err := out.Flush(); err != nil || next == "" {
			return err
		}
		f.Cursor = next
		if items, next, err = s.Audit.List(ctx, f); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// filter shows a caller no other user's records, whatever is asked for.
func (in AuditFilter) filter(c sandbox.Caller) (audit.Filter, error) {
	f := audit.Filter{
		Tenant: c.Tenant, User: in.User, Thread: in.Thread, Exec: in.Exec, Action: in.Action, Tool: in.Tool, Outcome: in.Outcome,
		Since: in.Since, Until: in.Until, Text: in.Text,
	}
	if c.Role != sandbox.RoleAdmin && c.Role != sandbox.RoleAuditor {
		if in.User != "" && in.User != c.User {
			return f, sandbox.Errorf(sandbox.Forbidden, "records of other users are for administrators and auditors")
		}
		f.User = c.User
	}
	return f, f.CheckNames()
}

func (s Routes) listAudit(ctx context.Context, in *auditIn) (*route.Body[auditPage], error) {
	f, err := in.filter(exchange.CallerOf(ctx))
	if err != nil {
		return nil, err
	}
	f.Cursor, f.Limit = in.Cursor, in.Limit
	items, next, err := s.Audit.List(ctx, f)
	if err != nil {
		return nil, err
	}
	return route.BodyOf(auditPage{Items: route.PageOf(items, next).Body.Items, NextCursor: next, Partial: next != "" && len(items) < in.Limit}), nil
}

func (s Routes) summarizeAudit(ctx context.Context, in *struct {
	AuditFilter
	Buckets int `query:"buckets" minimum:"1" maximum:"500" default:"60" doc:"The most spans of time: they are as long as it takes"`
},
) (*route.Body[audit.Summary], error) {
	f, err := in.filter(exchange.CallerOf(ctx))
	if err != nil {
		return nil, err
	}
	sum, err := s.Audit.Summarize(ctx, f, in.Buckets)
	if err != nil {
		return nil, err
	}
	return route.BodyOf(sum), nil
}
