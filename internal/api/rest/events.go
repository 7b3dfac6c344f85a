package rest

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"

	"github.com/skerry-sandbox/skerry/internal/api/rest/access"
	"github.com/skerry-sandbox/skerry/internal/api/rest/eventstream"
	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/service"
)

// eventRoutes is the route of the events of a thread.
type eventRoutes struct {
	api       *route.API
	events    service.Events
	access    *access.Authenticator
	stopping  func() context.Context
	heartbeat time.Duration
}

func (s eventRoutes) add() {
	// The holder: as long as a server has followers of a thread, all that happens in the thread happens there.
	op := route.On(http.MethodGet, "/api/threads/{thread}/events", "followEvents", route.TagThreads, route.Agents.At(route.Holder).Streaming(), "What happens in the thread, as it happens (server-sent events)")
	op.Description = "First the event started: what happens from then on is told. Then tools.changed, skills.changed and prompt.changed when what the caller's agent is told differs, " +
		"approval.requested and approval.decided, exec.started and exec.ended, files.changed when the API or an exec that reports its files changed some (files/watch tells of all), " +
		"and sandbox.started, sandbox.paused, sandbox.resumed, sandbox.hibernated and sandbox.ended. " +
		"Each event has an id. Send the last one as Last-Event-ID, or as after, to resume: nothing is missing between. Where the server does not have all of it any more, the first event is " +
		"reset in place of started: read the thread's state anew. A stream that takes too little gets a reset, too. The server keeps the newest 256 events, and for two minutes after the last stream ended. " +
		"An event end, and the end of the stream, when the thread is deleted; an event error with a problem when the key is not valid any more, or the server stops or gave the thread up: follow again. " +
		"At most 64 streams of a thread, and 512 of all kinds of a user on a server. It starts no sandbox, and keeps none from ending when it is idle."
	schema := route.Schema[sandbox.ThreadEvent](s.api, "")
	op.Responses = map[string]*huma.Response{
		"200":     {Description: "Events, each named by its kind, with this as data; end and error", Content: map[string]*huma.MediaType{"text/event-stream": {Schema: schema}}},
		"default": s.api.ProblemResponse(),
	}
	route.Register(s.api, op, s.follow)
}

func (s eventRoutes) follow(ctx context.Context, in *struct {
	route.ThreadIn
	After       string `query:"after" maxLength:"200" doc:"The id of the last event that was seen; Last-Event-ID comes first"`
	LastEventID string `header:"Last-Event-ID" maxLength:"200" doc:"The id of the last event that was seen; without it the stream begins now"`
},
) (*route.Written, error) {
	after := in.LastEventID
	if after == "" {
		after = in.After
	}
	return &route.Written{Body: func(c huma.Context) {
		ctx, because := context.WithCancelCause(ctx)
		cancel := func() { because(nil) }
		defer cancel()
		x := exchange.Of(ctx)
		defer s.access.Watch(x.Request, x.Caller, func() { because(sandbox.Errorf(sandbox.Unauthorized, "the key is not valid any more")) })()
		out := eventstream.New(x, humagin.Unwrap(c).Writer, s.heartbeat)
		var alive sync.WaitGroup
		begun := false
		err := s.events.FollowEvents(ctx, x.Caller, in.Thread, after, func(id string, kind sandbox.ThreadEventKind, data []byte) error {
			if !begun {
				begun = true
				alive.Go(func() { out.KeepAlive(ctx, cancel) })
			}
			return out.Send(fmt.Appendf(nil, "id: %s\nevent: %s\ndata: {\"id\":%q,%s\n\n", id, kind, id, data[1:])) // an object with members
		})
		cancel()
		alive.Wait()
		if err != nil && s.stopping().Err() != nil { // which ends the request of a stream without an end
			err = sandbox.Errorf(sandbox.Unavailable, "the server stops: follow the events again")
		}
		if err == nil {
			err = out.Send([]byte("event: " + eventstream.EventEnd + "\ndata: {}\n\n"))
		}
		out.End(ctx, err)
	}}, nil
}
