package config

// Audit says how what happens is recorded.
type Audit struct {
	AuditLog `yaml:",inline"`
}

func defaultAudit() Audit { return Audit{AuditLog: defaultAuditLog()} }

func (a *Audit) check(bad func(key, format string, args ...any)) { a.AuditLog.check(bad) }
