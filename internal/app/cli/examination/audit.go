package examination

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/skerry-sandbox/skerry/internal/app"
	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/audit/record"
	"github.com/skerry-sandbox/skerry/internal/audit/signing"
	"github.com/skerry-sandbox/skerry/internal/audit/sink"
	"github.com/skerry-sandbox/skerry/internal/observe/doctor"
)

// auditChecks look at the audit log and at what it is signed with.
type auditChecks struct{ *examination }

// audit looks at who signs the audit log, and whether those answer that records are sent to. Nothing is sent.
func (e auditChecks) audit(ctx context.Context, r *doctor.Report) {
	e.auditKey(ctx, r)
	sinks, err := app.AuditSinks(e.cfg.Audit)
	if err != nil {
		r.Problem("sinks", "mend audit.webhook, audit.webhook_secret, audit.webhook_addresses or audit.syslog", "%s", err)
		return
	}
	if len(sinks) == 0 {
		r.OK("sinks", "none: no record leaves this server, but to Redis when there is one")
	}
	for _, s := range sinks {
		e.auditSink(ctx, r, s)
		if c, ok := s.(io.Closer); ok {
			_ = c.Close() // nothing was sent
		}
	}
}

func (e auditChecks) auditSink(ctx context.Context, r *doctor.Report, s audit.Sink) {
	fix := map[string]string{
		"webhook": "start what listens there, or mend audit.webhook (and audit.webhook_addresses, when it is not on the public internet); records wait on disk until then",
		"syslog":  "start what listens there, or mend audit.syslog; records wait on disk until then",
	}[s.Name()]
	reached, ok := s.(interface{ Reach(context.Context) error })
	if !ok {
		return
	}
	err := reached.Reach(ctx)
	udp, isSyslog := s.(*sink.Syslog)
	switch {
	case err != nil:
		r.Warn(s.Name(), fix, "%s", err)
	case isSyslog && !udp.Answers():
		r.OK(s.Name(), "goes by UDP, which confirms nothing; tcp:// and tls:// lose less")
	case isSyslog:
		r.OK(s.Name(), "takes connections")
	default:
		r.OK(s.Name(), "answers; whether it takes records shows with the first one (readyz, skerry_audit_sink_behind_records)")
	}
}

// auditKey looks at the key that signs the log, and makes none.
func (e auditChecks) auditKey(ctx context.Context, r *doctor.Report) {
	const name = "signing key"
	c := e.cfg.Audit
	switch {
	case e.signingKeyErr != nil:
		r.Problem(name, "put an Ed25519 key into it (openssl genpkey -algorithm ed25519), or leave it away", "%s", e.signingKeyErr)
	case c.Signer != "":
		public, err := signing.ReadPublic(c.PublicKeyFile)
		if err != nil {
			r.Problem(name, "name the signer's public key in audit.public_key_file", "%s", err)
			return
		}
		if _, err := signing.NewExternal(c.Signer, public).Sign(ctx, []byte("skerry doctor looks whether this is signed\n")); err != nil {
			r.Warn(name, "start it, or mend audit.signer and audit.public_key_file; the log is not signed meanwhile", "%s", err)
			return
		}
		r.OK(name, "the external signer signs with the key %s of %s", record.KeyID(public), c.PublicKeyFile)
	case e.signingKey != nil:
		r.OK(name, "%s of the environment (%s)", record.KeyID(e.signingKey.Public()), app.SigningKeyEnv)
	case c.SigningKeyFile != "":
		e.auditKeyFile(r, name)
	default:
		r.Warn(name, "name a file outside the data folder in audit.signing_key_file; the server makes the key", "the log is not signed: who can write its files can write it anew without anybody seeing it")
	}
}

func (e auditChecks) auditKeyFile(r *doctor.Report, name string) {
	path := e.cfg.Audit.SigningKeyFile
	key, err := signing.Look(path, e.cfg.Data)
	info, statErr := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.OK(name, "there is no %s yet: the server makes it when it starts, mode 0600", path)
	case errors.Join(err, statErr) != nil:
		r.Problem(name, "do what it says, or name another file outside the data folder in audit.signing_key_file", "%s", errors.Join(err, statErr))
	default:
		r.OK(name, "%s in %s, outside the data folder, mode %04o; keep a copy of %s elsewhere", record.KeyID(key.Public()), path, info.Mode().Perm(), signing.PublicPath(path))
	}
}
