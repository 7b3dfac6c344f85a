package config

import (
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/platform/networks"
)

// Audit says how what happens is recorded.
type Audit struct {
	AuditLog   `yaml:",inline"`
	AuditViews `yaml:",inline"`
}

func defaultAudit() Audit {
	return Audit{AuditLog: defaultAuditLog(), AuditViews: AuditViews{RedisRecords: 1_000_000}}
}

func (a *Audit) check(bad func(key, format string, args ...any)) {
	a.AuditLog.check(bad)
	a.AuditViews.check(bad)
}

// AuditViews says what becomes of audit records besides the log under Data.
type AuditViews struct {
	// RedisRecords, RedisMiB (of their JSON) and RedisAge bound what Redis keeps of each tenant's records, the newest ones.
	// 0 is no bound, but for RedisRecords. Without Redis nothing is removed.
	RedisRecords int           `yaml:"redis_records"`
	RedisMiB     int           `yaml:"redis_mib"`
	RedisAge     time.Duration `yaml:"redis_age"`
	// Webhook gets all records by POST (https://…), signed with WebhookSecret (16 bytes at least). WebhookAddresses are networks
	// that it may be in besides the public internet.
	Webhook          string   `yaml:"webhook"`
	WebhookSecret    string   `yaml:"webhook_secret"`
	WebhookAddresses []string `yaml:"webhook_addresses"`
	// Syslog gets them too: tcp://host:port, tls://host:port, udp://host:port or unix:///path.
	Syslog string `yaml:"syslog"`
	// Archive gets full segments of the log: a folder that exists, or s3://bucket/prefix, with the settings of s3. KeepSegments is for how
	// many days a segment that is there stays on this disk; 0: for ever.
	Archive      string `yaml:"archive"`
	KeepSegments int    `yaml:"keep_segments"`
}

// Prefixes are WebhookAddresses, parsed. A single address is a network of one.
func (a *AuditViews) Prefixes() ([]netip.Prefix, error) {
	return networks.Parse(a.WebhookAddresses)
}

func (a *AuditViews) check(bad func(key, format string, args ...any)) {
	if a.RedisRecords < 1000 || a.RedisRecords > 1_000_000_000 {
		bad("audit.redis_records", "%d is not 1000 to 1000000000", a.RedisRecords)
	}
	if a.RedisMiB < 0 || a.RedisMiB > 1<<20 {
		bad("audit.redis_mib", "%d is not 0 to %d", a.RedisMiB, 1<<20)
	}
	if a.RedisAge < 0 || a.RedisAge > 0 && a.RedisAge < time.Minute {
		bad("audit.redis_age", "%s is neither 0 nor at least 1m", a.RedisAge)
	}
	if bucket, ok := strings.CutPrefix(a.Archive, "s3://"); a.Archive != "" && (ok && (bucket == "" || bucket[0] == '/') || !ok && !filepath.IsAbs(a.Archive)) {
		bad("audit.archive", "%.200q is neither the absolute path of a folder nor s3://bucket/prefix", a.Archive)
	}
	if a.KeepSegments < 0 || a.KeepSegments > 100_000 {
		bad("audit.keep_segments", "%d is not 0 to 100000 days", a.KeepSegments)
	}
	if a.KeepSegments > 0 && a.Archive == "" {
		bad("audit.keep_segments", "goes together with audit.archive: nothing is removed that is not archived")
	}
	if _, err := a.Prefixes(); err != nil {
		bad("audit.webhook_addresses", "%s", err)
	}
	if a.Webhook != "" && !strings.HasPrefix(a.Webhook, "https://") && !strings.HasPrefix(a.Webhook, "http://") {
		bad("audit.webhook", "is not https://host/path")
	}
	if a.Webhook != "" && len(a.WebhookSecret) < 16 {
		bad("audit.webhook_secret", "has %d bytes, at least 16", len(a.WebhookSecret))
	}
	if scheme, _, ok := strings.Cut(a.Syslog, "://"); a.Syslog != "" && (!ok || !strings.Contains(" tcp tls udp unix ", " "+scheme+" ")) {
		bad("audit.syslog", "%q is not tcp://, tls://, udp:// with host:port, or unix:///path", a.Syslog)
	}
}
