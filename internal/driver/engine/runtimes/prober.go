package runtimes

import (
	"context"
	"log/slog"
	"os"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/runtimeprobe"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Prober probes the runtimes of a driver.
type Prober struct {
	Driver  string // for the log
	Image   string // of probes; "": the driver shows the host's programs
	Program string // host path of a static program that runs runtimeprobe.Main; "": this one
	Dir     string // for scratch files; the engine must see it under this path
	Log     *slog.Logger
}

// Check answers as runtimeprobe.Check does, and logs the problem.
func (p Prober) Check(ctx context.Context, runtime string, starter runtimeprobe.Starter) (problem string, detail, err error) {
	cfg, err := p.config(runtime)
	if err != nil {
		return "", nil, err
	}
	problem, detail, err = runtimeprobe.Check(ctx, starter, cfg)
	p.warn(runtime, problem, detail, err)
	return problem, detail, err
}

// CheckProgram answers as runtimeprobe.CheckUserNamespace does, and notes in rt why there is to be no user namespace.
func (p Prober) CheckProgram(ctx context.Context, rt *Program, starter func(userNamespace bool) runtimeprobe.Starter) (problem string, detail, err error) {
	cfg, err := p.config(rt.Name)
	if err != nil {
		return "", nil, err
	}
	problem, rt.Without, detail, err = runtimeprobe.CheckUserNamespace(ctx, starter, cfg)
	p.warn(rt.Name, problem, detail, err)
	if rt.Without != "" {
		p.Log.Warn("sandboxes get no user namespace of their own", "driver", p.Driver, "runtime", rt.Name, "problem", rt.Without, "error", detail)
	}
	return problem, detail, err
}

func (p Prober) config(runtime string) (runtimeprobe.Config, error) {
	cfg := runtimeprobe.Config{Runtime: runtime, Image: p.Image, Program: p.Program, Dir: p.Dir}
	if cfg.Program == "" {
		self, err := os.Executable()
		if err != nil {
			return cfg, sandbox.Wrap(sandbox.Internal, err, "the runtime probe has no program")
		}
		cfg.Program = self
	}
	if cfg.Image == "" {
		return cfg, nil
	}
	return cfg, runtimeprobe.RequireStatic(cfg.Program)
}

func (p Prober) warn(runtime, problem string, detail, err error) {
	if err == nil && problem != "" {
		p.Log.Warn("a runtime cannot be used", "driver", p.Driver, "runtime", runtime, "problem", problem, "error", detail)
	}
}
