// Package runtimes finds the OCI runtimes of a host for the drivers that start sandboxes on them. It probes each
// runtime once, and says which can be used.
package runtimes

import (
	"context"
	"os/exec"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/ociconfig"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// flags go before every command of a runtime. runsc must not get --ignore-cgroups: it would remove every
// limit. --host-uds=all lets the sandbox reach the server's sockets, --oci-seccomp makes runsc apply the
// profile. --overlay2=none keeps it from writing to the root file system, which is read-only and may be
// shared. It also keeps runsc from making a file for what is written.
var flags = map[string][]string{
	"runsc": {"--platform=systrap", "--host-uds=all", "--network=none", "--oci-seccomp", "--overlay2=none"},
}

// Program is a runtime with its program.
type Program struct {
	hardening.Runtime
	Path  string   // of the host
	Flags []string // go before every command

	// Without says why sandboxes have no user namespace of their own; "" when they have. The probe writes it, and
	// only callers that have the probe's answer read it.
	Without string

	featuresOnce sync.Once
	how          ociconfig.Binding
}

// Find returns the known runtimes that have a program. Nil programs: the ones on PATH.
func Find(programs map[string]string) []*Program {
	var found []*Program
	for _, known := range hardening.Runtimes() {
		path := programs[known.Name]
		if programs == nil {
			path = onPath(known.Name)
		}
		if path != "" {
			found = append(found, &Program{Runtime: known, Path: path, Flags: flags[known.Name]})
		}
	}
	return found
}

// onPath finds the program of a runtime, or returns "". crun, which hosts of Fedora and Podman have, takes the place of
// runc: it is called the same way, and shares the host's kernel, too.
func onPath(name string) string {
	path, err := exec.LookPath(name)
	if err != nil && name == "runc" {
		path, err = exec.LookPath("crun")
	}
	if err != nil {
		return ""
	}
	return path
}

// Binding tells how the runtime can bind a folder with what is mounted below it.
func (p *Program) Binding(ctx context.Context) ociconfig.Binding {
	p.featuresOnce.Do(func() { p.how = ociconfig.BindingOf(ctx, p.Runtime, p.Path) })
	return p.how
}

// Set is the runtimes of a driver by name, only those with a program.
type Set[R any] map[string]R

// Find returns the runtime of a name, whether or not it was probed.
func (s Set[R]) Find(name string) (R, error) {
	rt, installed := s[name]
	if installed {
		return rt, nil
	}
	if _, err := hardening.FindRuntime(name); err != nil {
		return rt, err
	}
	return rt, sandbox.Errorf(sandbox.NotSupported, "runtime %q is not installed on this host", name)
}

// For checks the spec of a sandbox, and returns the runtime for it. NotSupported: the runtime cannot be used.
func (s Set[R]) For(ctx context.Context, spec sandbox.Spec, probed func(ctx context.Context, runtime string) (problem string, err error)) (R, error) {
	var none R
	if err := hardening.CheckSpec(spec); err != nil {
		return none, err
	}
	rt, err := s.Find(spec.Runtime)
	if err != nil {
		return none, err
	}
	problem, err := probed(ctx, spec.Runtime)
	return rt, Refused(spec.Runtime, problem, err)
}

// Refused is the error for a runtime whose probe found a problem, or could not be made.
func Refused(runtime, problem string, err error) error {
	if err == nil && problem != "" {
		err = sandbox.Errorf(sandbox.NotSupported, "runtime %q cannot be used: %s", runtime, problem)
	}
	return err
}

// Capabilities asks about every known runtime, and adds the answers to c. without says why sandboxes have no user
// namespace on a runtime that has no problem; "" when they have.
func Capabilities(ctx context.Context, c driver.Capabilities, ask func(ctx context.Context, runtime string) (problem, without string, err error)) (driver.Capabilities, error) {
	c.RuntimeProblems, c.NoUserNamespace = make(map[string]string), make(map[string]string)
	for _, known := range hardening.Runtimes() {
		problem, without, err := ask(ctx, known.Name)
		if err != nil {
			return driver.Capabilities{}, err
		}
		if problem != "" {
			c.RuntimeProblems[known.Name] = problem
			continue
		}
		c.Runtimes = append(c.Runtimes, known.Name)
		if without != "" {
			c.NoUserNamespace[known.Name] = without
		} else {
			c.UserNamespaces = append(c.UserNamespaces, known.Name)
		}
		if known.OwnKernel {
			c.OOMEndsSandbox = append(c.OOMEndsSandbox, known.Name)
		}
	}
	return c, nil
}
