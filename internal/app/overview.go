package app

import (
	"context"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/api/rest/overview"
	"github.com/skerry-sandbox/skerry/internal/observe/metrics"
	"github.com/skerry-sandbox/skerry/internal/observe/series"
	"github.com/skerry-sandbox/skerry/internal/platform/buildinfo"
)

// openOverview keeps how this server goes, until it is closed.
func openOverview(f *foundation, m *metrics.Metrics, onClose func(func() error)) *overview.Server {
	recorder := series.New(m)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { recorder.Run(ctx) })
	onClose(func() error {
		cancel()
		running.Wait()
		return nil
	})
	return &overview.Server{Replica: f.data.peers.ID(), Version: buildinfo.Version(), Series: recorder, Disk: func() (overview.DiskRoom, error) {
		var s unix.Statfs_t
		err := unix.Statfs(f.data.path, &s)
		return overview.DiskRoom{TotalBytes: int64(s.Blocks) * s.Bsize, FreeBytes: int64(s.Bavail) * s.Bsize}, err //nolint:gosec // no disk has 8 EiB
	}}
}
