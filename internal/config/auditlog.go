package config

import (
	"path/filepath"
	"strings"
)

// AuditLog says how the log under Data is written and signed.
type AuditLog struct {
	// OnFailure: "closed" refuses what cannot be recorded, "open" does it all the same and records the gap later.
	OnFailure string `yaml:"on_failure"`
	// SigningKeyFile holds the private key that signs the log's head, outside Data; made when it is missing. Empty: the
	// log is not signed, unless by Signer or a key in SKERRY_AUDIT_SIGNING_KEY.
	SigningKeyFile string `yaml:"signing_key_file"`
	// Signer is another program that signs: unix:/path/of/a/socket, or a command with its arguments. PublicKeyFile is
	// its public key.
	Signer        string `yaml:"signer"`
	PublicKeyFile string `yaml:"public_key_file"`
}

func defaultAuditLog() AuditLog {
	return AuditLog{OnFailure: "closed", SigningKeyFile: "/etc/skerry/audit-signing-key.pem"}
}

func (a *AuditLog) check(bad func(key, format string, args ...any)) {
	if a.OnFailure != "closed" && a.OnFailure != "open" {
		bad("audit.on_failure", "%.40q is not one of closed, open", a.OnFailure)
	}
	if a.SigningKeyFile != "" && !filepath.IsAbs(a.SigningKeyFile) {
		bad("audit.signing_key_file", "%q is not an absolute path", a.SigningKeyFile)
	}
	if a.PublicKeyFile != "" && !filepath.IsAbs(a.PublicKeyFile) {
		bad("audit.public_key_file", "%q is not an absolute path", a.PublicKeyFile)
	}
	if a.Signer == "" {
		return
	}
	if path, ok := strings.CutPrefix(a.Signer, "unix:"); ok && !filepath.IsAbs(path) || !ok && !filepath.IsAbs(strings.Fields(a.Signer + " x")[0]) {
		bad("audit.signer", "%q is neither unix: and an absolute path, nor a command with an absolute path", a.Signer)
	}
	if a.PublicKeyFile == "" {
		bad("audit.public_key_file", "is empty: name the file of the public key that signatures of audit.signer are checked with")
	}
}
