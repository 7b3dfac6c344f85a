package containerd

import (
	"context"
	"fmt"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
)

var _ driver.Describer = (*Driver)(nil)

// maxVersion bounds each text that an engine reports of itself.
const maxVersion = 200

// About implements driver.Describer. containerd's API has no number of its own: it is that of its version.
func (d *Driver) About(ctx context.Context) (driver.About, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	v, err := d.engine.Version(ctx)
	if err != nil {
		return driver.About{}, engineError(err, "containerd does not answer")
	}
	about := driver.About{Engine: fmt.Sprintf("containerd %.*s", maxVersion, v.Version), Programs: map[string]string{}, Advice: hardening.Advice()}
	for name, rt := range d.runtimes {
		about.Programs[name] = rt.Path
	}
	return about, nil
}
