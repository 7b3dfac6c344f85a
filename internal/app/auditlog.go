package app

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/rest"
	"github.com/skerry-sandbox/skerry/internal/app/buckets"
	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/audit/archive"
	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/audit/signing"
	"github.com/skerry-sandbox/skerry/internal/audit/sink"
	"github.com/skerry-sandbox/skerry/internal/audit/verify"
	"github.com/skerry-sandbox/skerry/internal/config"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// SigningKeyEnv may hold the private key. It is taken out of the environment at once: children never have it.
const SigningKeyEnv = "SKERRY_AUDIT_SIGNING_KEY"

// TakeSigningKey returns the key that the environment holds, which no longer does.
func TakeSigningKey() (signing.Key, error) {
	text, ok := os.LookupEnv(SigningKeyEnv)
	if !ok || text == "" {
		return nil, nil
	}
	if err := os.Unsetenv(SigningKeyEnv); err != nil {
		return nil, err
	}
	k, err := signing.ParsePrivate([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", SigningKeyEnv, err)
	}
	return k, nil
}

// auditSigner is who signs the log, and where its last heads are kept beside the log.
type auditSigner struct {
	key  signing.Key // nil: the log is not signed
	dir  string      // of the log
	keep string      // "": nowhere
}

// openSigner finds out who signs the audit log.
func openSigner(ctx context.Context, cfg config.Config, log *slog.Logger) (auditSigner, error) {
	given, err := TakeSigningKey()
	if err != nil {
		return auditSigner{}, err
	}
	c, s := cfg.Audit, auditSigner{dir: filepath.Join(cfg.Data, "audit")}
	switch {
	case c.Signer != "":
		public, err := signing.ReadPublic(c.PublicKeyFile)
		if err != nil {
			return auditSigner{}, fmt.Errorf("audit.public_key_file: %w", err)
		}
		s.key = signing.NewExternal(c.Signer, public)
	case given != nil:
		s.key = given
	case c.SigningKeyFile != "":
		f, made, err := signing.OpenFile(c.SigningKeyFile, cfg.Data)
		if err != nil {
			return auditSigner{}, err
		}
		if made {
			log.Warn("a key that signs the audit log was made; keep a copy of the public one elsewhere",
				"private", c.SigningKeyFile, "public", signing.PublicPath(c.SigningKeyFile), "key_id", record.KeyID(f.Public()))
		}
		s.key, s.keep = f, signing.KeptBeside(c.SigningKeyFile)
	default:
		log.Warn("the audit log is not signed (audit.signing_key_file is empty): what was written anew with all its hashes is not found in its files")
		return auditSigner{}, nil
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return auditSigner{}, fmt.Errorf("audit log: %w", err)
	}
	lost, err := signing.Enrol(ctx, s.dir, s.key, nil)
	if err != nil {
		return auditSigner{}, fmt.Errorf("audit log: %w", err)
	}
	if lost {
		log.Warn("the audit log is signed with a new key for which the former one does not vouch; if this was not intended, find out why (skerry audit keys list)",
			"key_id", record.KeyID(s.key.Public()))
	}
	return s, signing.Tidy(s.keep)
}

// sign makes the options of the log those of a signed one.
func (s auditSigner) sign(o *audit.Options) {
	if s.key != nil {
		o.Signer = signing.NewHeads(s.key, s.dir, s.keep)
	}
	o.Trust = func() (verify.Options, error) {
		var public ed25519.PublicKey
		if s.key != nil {
			public = s.key.Public()
		}
		return signing.Against(s.dir, public, s.keep)
	}
}

// auditLogs opens the audit logs of the slots of a data folder.
type auditLogs struct {
	cfg    config.Config
	store  *store.Store
	signer auditSigner
	log    *slog.Logger
}

// open opens the audit log of a slot.
func (l *auditLogs) open(slot int) (*audit.Log, error) {
	options := audit.Options{Dir: filepath.Join(l.cfg.Data, "audit"), Slot: slot, Keep: auditKeep(l.cfg.Audit), Log: l.log}
	if !l.store.Embedded() {
		options.Redis = l.store.Redis()
	}
	var err error
	if options.Sinks, err = AuditSinks(l.cfg.Audit); err != nil {
		return nil, err
	}
	if options.Archive, err = auditArchive(l.cfg); err != nil {
		return nil, err
	}
	options.KeepSegments = time.Duration(l.cfg.Audit.KeepSegments) * 24 * time.Hour
	options.FailOpen = l.cfg.Audit.OnFailure == "open"
	l.signer.sign(&options)
	return audit.Open(options)
}

// AuditSinks are those of one log, which closes them.
func AuditSinks(c config.Audit) (sinks []audit.Sink, err error) {
	if c.Webhook != "" {
		allowed, err := c.Prefixes()
		if err != nil {
			return nil, err
		}
		w, err := sink.NewWebhook(c.Webhook, []byte(c.WebhookSecret), allowed)
		if err != nil {
			return nil, err
		}
		sinks = append(sinks, w)
	}
	if c.Syslog != "" {
		s, err := sink.NewSyslog(c.Syslog)
		if err != nil {
			return nil, err
		}
		sinks = append(sinks, s)
	}
	return sinks, nil
}

// auditArchive is that of one log, which closes it; nil: there is none.
func auditArchive(c config.Config) (audit.Archive, error) {
	address := c.Audit.Archive
	switch {
	case address == "":
		return nil, nil //nolint:nilnil // there is none
	case !strings.HasPrefix(address, "s3://"):
		return archive.NewFolder(address), nil
	}
	o, err := buckets.Options(c.S3)
	if err != nil {
		return nil, err
	}
	o.MaxBytes = 0 // reading stops behind the size of the segment
	b, err := archive.NewBucket(address, o)
	if err != nil {
		return nil, fmt.Errorf("audit.archive: %w", err)
	}
	return b, nil
}

// archiveCheck tells how far the audit archive is. A server whose archive is away serves all the same.
func archiveCheck(log *audit.Log) []rest.Check {
	s, ok := log.Archive()
	if !ok {
		return nil
	}
	c := rest.Check{Name: "audit archive", OK: true, Detail: fmt.Sprintf("%d segments behind", s.Behind)}
	if s.Err != nil { // /readyz needs no key: why is in the server's log
		c.Detail += "; archiving fails now"
	}
	return []rest.Check{c}
}

// sinkChecks tell how far the sinks are. A server whose sinks are away serves all the same.
func sinkChecks(log *audit.Log) (checks []rest.Check) {
	for _, s := range log.Sinks() {
		c := rest.Check{Name: "audit " + s.Name, OK: true, Detail: fmt.Sprintf("%d records behind", s.Behind)}
		if s.Error != "" {
			c.Detail += "; it does not take them now"
		}
		checks = append(checks, c)
	}
	return checks
}

func auditKeep(c config.Audit) audit.Keep {
	return audit.Keep{Records: int64(c.RedisRecords), Bytes: int64(c.RedisMiB) << 20, Age: c.RedisAge}
}
