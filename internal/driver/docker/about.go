package docker

import (
	"context"
	"fmt"

	"github.com/moby/moby/client"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

var _ driver.Describer = (*Driver)(nil)

// maxTold bounds each word that is believed of an engine.
const maxTold = 200

// About implements driver.Describer.
func (d *Driver) About(ctx context.Context) (driver.About, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	ping, err := d.engine.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true})
	if err != nil {
		return driver.About{}, engineError(err, "the container engine does not answer")
	}
	if ping.APIVersion == "" {
		return driver.About{}, sandbox.Errorf(sandbox.NotSupported, "what answers is no container engine")
	}
	info, err := d.engine.Info(ctx, client.InfoOptions{})
	if err != nil {
		return driver.About{}, engineError(err, "the container engine does not tell its runtimes")
	}
	about := driver.About{
		Engine:   fmt.Sprintf("Docker %.*s", maxTold, info.Info.ServerVersion),
		API:      fmt.Sprintf("%.*s (%s is enough)", maxTold, ping.APIVersion, minAPIVersion),
		Programs: map[string]string{},
	}
	for ours, name := range namesOf(info.Info.Runtimes) {
		about.Programs[ours] = info.Info.Runtimes[name].Path
	}
	return about, nil
}
