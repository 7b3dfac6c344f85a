package oci

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
)

var _ driver.Describer = (*Driver)(nil)

// About implements driver.Describer. There is no engine: only programs are named.
func (d *Driver) About(context.Context) (driver.About, error) {
	about := driver.About{Programs: map[string]string{}, Advice: hardening.Advice()}
	for name, rt := range d.runtimes {
		about.Programs[name] = rt.Path
	}
	return about, nil
}
