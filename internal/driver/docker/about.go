package docker

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/moby/moby/client"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

var _ driver.Describer = (*Driver)(nil)

// maxVersion bounds each text that an engine reports of itself.
const maxVersion = 200

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
		Engine:   fmt.Sprintf("Docker %.*s", maxVersion, info.Info.ServerVersion),
		API:      fmt.Sprintf("%.*s (%s is enough)", maxVersion, ping.APIVersion, minAPIVersion),
		Programs: map[string]string{}, Advice: map[string]string{},
	}
	for _, known := range hardening.Runtimes() {
		about.Advice[known.Name] = advice(known.Name)
	}
	for ours, name := range namesOf(info.Info.Runtimes) {
		about.Programs[ours] = info.Info.Runtimes[name].Path
	}
	return about, nil
}

// engineFlags are what the engine must register a runtime with.
var engineFlags = map[string][]string{"runsc": {"--platform=systrap", "--host-uds=all", "--oci-seccomp"}}

// advice is what to do so that sandboxes start on a runtime: the engine comes with runc, the others want
// an entry in its configuration.
func advice(runtime string) string {
	if len(engineFlags[runtime]) == 0 {
		return "install " + runtime + " 1.1 or newer beside the engine, and look what `docker run` says"
	}
	entry := map[string]any{"runtimes": map[string]any{runtime: map[string]any{"path": "/usr/local/bin/" + runtime, "runtimeArgs": engineFlags[runtime]}}}
	line, _ := json.Marshal(entry) //nolint:errcheck // texts only
	return "put into /etc/docker/daemon.json " + string(line) + " with the path where it is, and restart dockerd"
}
