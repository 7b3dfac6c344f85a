package execution

import (
	"time"

	"github.com/skerry-sandbox/skerry/internal/observe/tracing"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Trace holds the spans of an exec. A sandbox has no network, and its daemon's word is data. So the server
// makes the spans of what goes on inside, from the times at which its events came. It makes the process's
// span at the end, but hands out its id at the start, so that its tool calls are below it.
type Trace struct {
	Span    *tracing.Span // of the exec, from the call to its durable end
	Within  tracing.Link  // of it
	Run     *tracing.Span // of the call to sandboxd
	Below   tracing.Link  // of it
	Process tracing.Link
	Began   time.Time // when sandboxd said that the process started; of the goroutine that sees it through
}

// EndTrace ends the span of an exec: when its end is durable.
func (e *Exec) EndTrace(id sandbox.ID, res *sandbox.Result) {
	s := e.Trace.Span
	if s == nil {
		return
	}
	s.Set("skerry.sandbox.id", string(id))
	s.Set("skerry.exec.status", string(res.Status))
	s.SetInt("skerry.exec.stdout_bytes", int64(len(res.Stdout)))
	s.SetInt("skerry.exec.stderr_bytes", int64(len(res.Stderr)))
	s.SetInt("skerry.exec.tool_calls", int64(len(res.ToolsCalled)))
	if res.Status != sandbox.StatusExited {
		s.FailedAs(string(res.Status))
	}
	s.End()
}
