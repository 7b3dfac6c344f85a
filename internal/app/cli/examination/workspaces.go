package examination

import (
	"context"
	"errors"

	"github.com/skerry-sandbox/skerry/internal/app"
	"github.com/skerry-sandbox/skerry/internal/observe/doctor"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/snapshot"
)

// workspaces looks whether the store of threads' files can be used.
func (e *examination) workspaces(ctx context.Context, r *doctor.Report) {
	objects, closing, err := app.SnapshotObjects(e.cfg)
	if err == nil && objects == nil {
		r.OK("", "not configured: the files of threads are in the data folder alone")
		return
	}
	if err == nil {
		err = errors.Join(snapshot.Check(ctx, objects, "doctor-"+string(sandbox.NewID())), closing())
	}
	if err != nil {
		r.Problem("", "mend workspaces, and s3.endpoint, s3.region, s3.access_key, s3.secret_key and s3.addresses for a bucket", "a server does not start: %s", sandbox.TextOf(err))
		return
	}
	r.OK("", "%s can be written, and holds to conditional writes", objects.Name())
}
