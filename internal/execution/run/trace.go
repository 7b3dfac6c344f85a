package run

import (
	"context"
	"time"

	"github.com/skerry-sandbox/skerry/internal/execution"
	"github.com/skerry-sandbox/skerry/internal/instance"
	"github.com/skerry-sandbox/skerry/internal/observe/tracing"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
)

// traces are the spans of a run.
type traces struct{ *Runner }

// beginTrace begins the span of an exec. The context that it returns is that of the request.
func (x traces) beginTrace(ctx context.Context, e *execution.Exec, id string, t sandbox.Thread) context.Context {
	if x.o.Tracer == nil {
		return ctx
	}
	ctx, span := x.o.Tracer.Start(ctx, e.Spec.Action, tracing.Internal)
	span.Set("skerry.exec.id", id)
	span.Set("skerry.thread.id", t.ID)
	e.Trace.Span, e.Trace.Within = span, tracing.LinkOf(ctx)
	return ctx
}

// enter counts an exec into the sandbox that it runs in: the thread's own, or that of the template of its skill.
func (x traces) enter(ctx context.Context, c sandbox.Caller, t sandbox.Thread, template string) (*instance.Instance, map[string]string, error) {
	if template != "" {
		return x.o.Starts.EnterTemplate(ctx, c, t, template)
	}
	return x.o.Starts.Enter(ctx, c, t)
}

// enterTraced is enter, with a span when a sandbox had to be started, or found its way back.
func (x traces) enterTraced(ctx context.Context, c sandbox.Caller, t sandbox.Thread, template string) (*instance.Instance, map[string]string, error) {
	if x.o.Tracer == nil {
		return x.enter(ctx, c, t, template)
	}
	if inst := x.o.Live.Find(t); template == "" && inst != nil && inst.IsReady() && inst.Info().State == sandbox.Running {
		return x.enter(ctx, c, t, template)
	}
	ctx, span := x.o.Tracer.Start(ctx, "sandbox.acquire", tracing.Internal)
	defer span.End()
	inst, env, err := x.enter(ctx, c, t, template)
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
func (x traces) traceRun(e *execution.Exec) {
	if x.o.Tracer == nil {
		return
	}
	ctx, span := x.o.Tracer.Start(e.Trace.Within.Into(context.Background()), "skerry.sandbox.v1.SandboxService/Run", tracing.Client)
	span.Set("rpc.system.name", "connectrpc")
	span.Set("rpc.method", "skerry.sandbox.v1.SandboxService/Run")
	e.Trace.Run, e.Trace.Below, e.Trace.Process = span, tracing.LinkOf(ctx), x.o.Tracer.Reserve(ctx)
}

// streamTraced is stream, with the span of the process.
func (x traces) streamTraced(inst *instance.Instance, e *execution.Exec, req *sandboxv1.RunRequest) (*sandboxv1.Exit, sandbox.Status) {
	if x.o.Tracer == nil {
		return x.stream(inst, e, req)
	}
	exit, status := x.stream(inst, e, req)
	ended := time.Now()
	if !e.Trace.Began.IsZero() {
		// What sandboxd says of the time counts as far as it can be true.
		if said := e.Trace.Began.Add(time.Duration(exit.GetDurationUs()) * time.Microsecond); exit != nil && said.Before(ended) {
			ended = said
		}
		name := "process"
		if e.Spec.Code != nil {
			name = "interpreter"
		}
		x.o.Tracer.Record(e.Trace.Below.Into(context.Background()), e.Trace.Process, name, e.Trace.Began, ended, func(s *tracing.Span) {
			s.Set("skerry.exec.id", e.ID)
			if e.Spec.Code != nil {
				s.Set("skerry.code.language", req.GetCode().GetLanguage())
			}
			s.SetInt("process.exit.code", int64(exit.GetCode()))
			s.SetInt("skerry.exec.cpu_ms", exit.GetCpuUs()/1000)
		})
	}
	if status != "" {
		e.Trace.Run.FailedAs(string(status))
	}
	e.Trace.Run.End()
	return exit, status
}
