package runtimeprobe

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/hardening"
)

// Capabilities are those of an isolating driver on this host: probed says of each known runtime why
// it cannot be used, or "" when it can.
func Capabilities(ctx context.Context, name string, probed func(ctx context.Context, runtime string) (problem string, err error)) (driver.Capabilities, error) {
	c := driver.Capabilities{Name: name, RuntimeProblems: make(map[string]string), Network: "none", Isolated: true}
	for _, known := range hardening.Runtimes() {
		problem, err := probed(ctx, known.Name)
		if err != nil {
			return driver.Capabilities{}, err
		}
		if problem != "" {
			c.RuntimeProblems[known.Name] = problem
			continue
		}
		c.Runtimes = append(c.Runtimes, known.Name)
		if known.OwnKernel {
			c.OOMEndsSandbox = append(c.OOMEndsSandbox, known.Name)
		}
	}
	return c, nil
}
