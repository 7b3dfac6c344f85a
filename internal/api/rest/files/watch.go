package files

import (
	"bytes"
	"context"
	"encoding/json"
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
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// watchRoutes are the routes of watches of files.
type watchRoutes struct {
	api       *route.API
	files     service.Files
	access    *access.Authenticator
	stopping  func() context.Context
	heartbeat time.Duration
}

type watchIn struct {
	PathIn
	Recursive bool `query:"recursive" default:"true" doc:"Also what is in the folders of the folder"`
}

func (s watchRoutes) add() {
	op := route.On(http.MethodGet, "/api/threads/{thread}/files/watch", "watchFiles", route.TagFiles, route.Agents.At(route.Owner).Streaming(), "What changes in a folder, as it changes (server-sent events)")
	op.Description = "First the event started: what changes from then on is told. Then an event change for each file or folder that was created, modified or deleted; " +
		"a rename is both, and what comes and goes within a moment may not be told. An event end, and the end of the stream, when the thread's sandbox has ended: its last changes come before. " +
		"An event error with a problem, when the thread or the folder is gone, has more than 10000 entries, or the server stops. It cannot be resumed: who was cut off lists the folder. " +
		"At most 16 watches of a thread, 64 of a user and 128 of a server. It starts no sandbox, and keeps none from ending when it is idle."
	schema := route.Schema[paths.Change](s.api, "")
	op.Responses = map[string]*huma.Response{
		"200":     {Description: "Events started, change with this as data, end, error", Content: map[string]*huma.MediaType{"text/event-stream": {Schema: schema}}},
		"default": s.api.ProblemResponse(),
	}
	route.Register(s.api, op, s.watchFiles)
}

func (s watchRoutes) watchFiles(ctx context.Context, in *watchIn) (*route.Written, error) {
	if _, err := paths.Clean(in.Path); err != nil {
		return nil, err
	}
	return &route.Written{Body: func(c huma.Context) {
		ctx, because := context.WithCancelCause(ctx)
		cancel := func() { because(nil) }
		defer cancel()
		x := exchange.Of(ctx)
		defer s.access.Watch(x.Request, x.Caller, func() { because(sandbox.Errorf(sandbox.Unauthorized, "the key is not valid any more")) })()
		defer context.AfterFunc(s.stopping(), func() { because(sandbox.Errorf(sandbox.Unavailable, "the server stops: watch again")) })()
		f := fileStream{eventstream.New(x, humagin.Unwrap(c).Writer, s.heartbeat)}
		var alive sync.WaitGroup
		began := false
		err := s.files.WatchFiles(ctx, x.Caller, in.Thread, in.Path, in.Recursive, func(changes []paths.Change) error {
			if !began {
				began = true
				alive.Go(func() { f.KeepAlive(ctx, cancel) })
				return f.Send([]byte("event: " + sandbox.EventStarted + "\ndata: {}\n\n"))
			}
			return f.emit(changes)
		})
		cancel()
		alive.Wait()
		if err == nil {
			err = f.Send([]byte("event: " + eventstream.EventEnd + "\ndata: {}\n\n"))
		}
		f.End(ctx, err)
	}}, nil
}

// fileStream writes changes of files as server-sent events.
type fileStream struct{ *eventstream.Stream }

// sentAtOnce is how many bytes of events are put together.
const sentAtOnce = 64 << 10

func (f fileStream) emit(changes []paths.Change) error {
	var out bytes.Buffer
	for i, c := range changes {
		text, err := json.Marshal(c)
		if err != nil {
			return err
		}
		out.WriteString("event: " + eventstream.EventChange + "\ndata: ")
		out.Write(text)
		out.WriteString("\n\n")
		if out.Len() > sentAtOnce || i == len(changes)-1 {
			if err := f.Send(out.Bytes()); err != nil {
				return err
			}
			out.Reset()
		}
	}
	return nil
}
