package orchestrator

import (
	"context"
	"time"

	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/observe/tracing"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
)

// execTrace is what is traced of an exec. A sandbox has no network, and its daemon's word is data: so the spans of what goes
// on inside are made here, from when its events came. That of the process is made at the end, but its id is given out at
// the start, so that the tool calls of its code are below it.
type execTrace struct {
	span    *tracing.Span // of the exec, from the call to its durable end
	within  tracing.Link  // of it
	run     *tracing.Span // of the call to sandboxd
	below   tracing.Link  // of it
	process tracing.Link
	began   time.Time // when sandboxd said that the process started; of the goroutine that sees it through
}

// beginTrace begins the span of an exec. The context that it gives is that of the request.
func (r *Orchestrator) beginTrace(ctx context.Context, e *execution, id string, t sandbox.Thread) context.Context {
	if r.o.Tracer == nil {
		return ctx
	}
	ctx, span := r.o.Tracer.Start(ctx, e.action, tracing.Internal)
	span.Set("skerry.exec.id", id)
	span.Set("skerry.thread.id", t.ID)
	e.trace.span, e.trace.within = span, tracing.LinkOf(ctx)
	return ctx
}

// enterTraced is enter, with a span when a sandbox had to be started, or found its way back.
func (r *Orchestrator) enterTraced(ctx context.Context, c sandbox.Caller, t sandbox.Thread) (*instance.Instance, map[string]string, error) {
	if r.o.Tracer == nil {
		return r.enter(ctx, c, t)
	}
	if inst := r.find(t); inst != nil && inst.IsReady() && inst.Info().State == sandbox.Running {
		return r.enter(ctx, c, t)
	}
	ctx, span := r.o.Tracer.Start(ctx, "sandbox.acquire", tracing.Internal)
	defer span.End()
	inst, env, err := r.enter(ctx, c, t)
	if err != nil {
		span.Failed(err)
		return nil, nil, err
	}
	i := inst.Info()
	span.Set("skerry.sandbox.id", string(i.ID))
	span.Set("skerry.template", i.Template)
	span.Set("skerry.driver", i.Driver)
	span.Set("skerry.runtime", i.Runtime)
	return inst, env, nil
}

// traceRun begins the span of the call to sandboxd, and sets the id of the process.
func (r *Orchestrator) traceRun(e *execution) {
	if r.o.Tracer == nil {
		return
	}
	ctx, span := r.o.Tracer.Start(e.trace.within.Into(context.Background()), "skerry.sandbox.v1.SandboxService/Run", tracing.Client)
	span.Set("rpc.system.name", "connectrpc")
	span.Set("rpc.method", "skerry.sandbox.v1.SandboxService/Run")
	e.trace.run, e.trace.below, e.trace.process = span, tracing.LinkOf(ctx), r.o.Tracer.Reserve(ctx)
}

// streamTraced is stream, with the span of the process.
func (r *Orchestrator) streamTraced(inst *instance.Instance, e *execution, req *sandboxv1.RunRequest) (*sandboxv1.Exit, sandbox.Status) {
	if r.o.Tracer == nil {
		return r.stream(inst, e, req)
	}
	exit, status := r.stream(inst, e, req)
	ended := time.Now()
	if !e.trace.began.IsZero() {
		// What sandboxd says of the time counts as far as it can be true.
		if said := e.trace.began.Add(time.Duration(exit.GetDurationUs()) * time.Microsecond); exit != nil && said.Before(ended) {
			ended = said
		}
		name := "process"
		if e.code != nil {
			name = "interpreter"
		}
		r.o.Tracer.Record(e.trace.below.Into(context.Background()), e.trace.process, name, e.trace.began, ended, func(s *tracing.Span) {
			s.Set("skerry.exec.id", e.id)
			if e.code != nil {
				s.Set("skerry.code.language", req.GetCode().GetLanguage())
			}
			s.SetInt("process.exit.code", int64(exit.GetCode()))
			s.SetInt("skerry.exec.cpu_ms", exit.GetCpuUs()/1000)
		})
	}
	if status != "" {
		e.trace.run.FailedAs(string(status))
	}
	e.trace.run.End()
	return exit, status
}

// endTrace ends the span of an exec: when its end is durable.
func (e *execution) endTrace(inst *instance.Instance, res *sandbox.Result) {
	s := e.trace.span
	if s == nil {
		return
	}
	s.Set("skerry.sandbox.id", string(inst.ID))
	s.Set("skerry.exec.status", string(res.Status))
	s.SetInt("skerry.exec.stdout_bytes", int64(len(res.Stdout)))
	s.SetInt("skerry.exec.stderr_bytes", int64(len(res.Stderr)))
	s.SetInt("skerry.exec.tool_calls", int64(len(res.ToolsCalled)))
	if res.Status != sandbox.StatusExited {
		s.FailedAs(string(res.Status))
	}
	s.End()
}
