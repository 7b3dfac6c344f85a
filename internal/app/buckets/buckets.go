package buckets

import (
	"os"

	"github.com/skerry-sandbox/skerry/internal/app/environment"
	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/platform/s3"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/archive"
)

// Options are those of the configuration, with the variables of Amazon's own programs for what it
// leaves open. Buckets are not restricted.
func Options(c config.S3) (s3.Options, error) {
	addresses, err := c.Prefixes()
	if err != nil {
		return s3.Options{}, sandbox.Errorf(sandbox.Invalid, "s3.addresses: %s", err)
	}
	o := s3.Options{
		Endpoint: c.Endpoint, Region: c.Region, AccessKey: c.AccessKey, SecretKey: c.SecretKey, Session: c.SessionToken,
		PathStyle: c.PathStyle, Addresses: addresses, MaxBytes: archive.DefaultLimits().ArchiveBytes,
	}
	if o.AccessKey == "" {
		o.AccessKey, o.SecretKey, o.Session = os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), os.Getenv("AWS_SESSION_TOKEN")
	}
	if o.Region == "" {
		o.Region = environment.Or("AWS_REGION", os.Getenv("AWS_DEFAULT_REGION"))
	}
	return o, nil
}
