package kubernetes

import (
	"context"

	"github.com/skerry-sandbox/skerry/internal/driver"
)

// Watch implements driver.Driver. A pod that is evicted, deleted or lost with its node is reported when the API server
// says so; of a program that ended, the kubelet tells it, which looks once a second.
func (d *Driver) Watch(ctx context.Context) (<-chan driver.Event, error) {
	first, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.closing, cancel)()
	if err := d.pods.synced(first); err != nil {
		return nil, err
	}
	return d.pods.events.Watch(ctx, d.closing, &d.running), nil
}
