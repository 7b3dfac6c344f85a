package examination

import (
	"context"
	"os"

	"github.com/skerry-sandbox/skerry/internal/app"
	"github.com/skerry-sandbox/skerry/internal/observe/doctor"
	"github.com/skerry-sandbox/skerry/internal/workspace/quota"
)

// diskQuota tells what bounds the files of threads, as a server would find it. It changes nothing that stays.
func (e *examination) diskQuota(ctx context.Context, r *doctor.Report) {
	if e.cfg.DiskQuota == quota.Off {
		r.Warn("", "set disk_quota to auto", "switched off (disk_quota): only the server's own writes are counted")
		return
	}
	state, err := quota.Inspect(ctx, app.DiskOptions(e.cfg))
	switch {
	case err != nil:
		r.Problem("", "mend that, or set disk_quota to auto", "%s", err)
	case state.Enforced:
		r.OK("", "%s", state)
	case os.Geteuid() != 0:
		r.Warn("", "run doctor as root", "%s", state)
	default:
		r.Warn("", "mount the data folder with usrquota and prjquota (ext4, xfs), switch on its quotas (btrfs quota enable --simple), or set disk_image_mib", "%s", state)
	}
}
