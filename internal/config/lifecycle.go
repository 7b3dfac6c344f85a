package config

import (
	"slices"
	"time"
)

// Lifecycle says how long sandboxes live and how many there may be. Durations are 0 for none, or never.
type Lifecycle struct {
	// MaxSandboxesPerTenant bounds how many sandboxes of one tenant run at once; 0: only MaxSandboxes does.
	MaxSandboxesPerTenant int `yaml:"max_sandboxes_per_tenant"`
	// QueueLength is how many requests of one tenant may wait for a sandbox when there are too many.
	QueueLength int `yaml:"queue_length"`
	// QueueTimeout is how long an exec waits there, and how long the turn is kept of a caller who asks again.
	QueueTimeout time.Duration `yaml:"queue_timeout"`
	// ReclaimIdle lets a sandbox that was unused for so long be hibernated when another one wants its place.
	ReclaimIdle time.Duration `yaml:"reclaim_idle"`
	// MaxAge is how old a sandbox may get whose template has no max_age_s; it is hibernated when nothing runs in
	// it, and after MaxAgeGrace more in any case.
	MaxAge      time.Duration `yaml:"max_age"`
	MaxAgeGrace time.Duration `yaml:"max_age_grace"`
	// Activity is what keeps a sandbox from being idle, beside execs: acquire, file_write, file_read, tool_call.
	Activity []string `yaml:"activity"`
	// DrainTimeout is how long execs may go on after SIGTERM.
	DrainTimeout time.Duration `yaml:"drain_timeout"`
	// ShutdownDelay is how long a server answers after SIGTERM at least, when others take its work: as long as it
	// takes until no load balancer sends it requests.
	ShutdownDelay time.Duration `yaml:"shutdown_delay"`
}

func defaultLifecycle() Lifecycle {
	return Lifecycle{
		QueueLength: 100, QueueTimeout: time.Minute, ReclaimIdle: time.Minute, MaxAgeGrace: 10 * time.Minute,
		Activity: []string{"acquire", "file_write", "tool_call"}, DrainTimeout: 20 * time.Second, ShutdownDelay: 5 * time.Second,
	}
}

func (l *Lifecycle) check(bad func(key, format string, args ...any)) {
	if l.MaxSandboxesPerTenant < 0 {
		bad("max_sandboxes_per_tenant", "%d is negative", l.MaxSandboxesPerTenant)
	}
	if l.QueueLength < 0 || l.QueueLength > 100_000 {
		bad("queue_length", "%d is not 0 to 100000", l.QueueLength)
	}
	if l.QueueTimeout < time.Second || l.QueueTimeout > time.Hour {
		bad("queue_timeout", "%s is not 1s to 1h", l.QueueTimeout)
	}
	if l.ReclaimIdle < 0 {
		bad("reclaim_idle", "%s is negative", l.ReclaimIdle)
	}
	if l.MaxAge < 0 || l.MaxAge > 0 && l.MaxAge < time.Second {
		bad("max_age", "%s is neither 0 nor at least 1s", l.MaxAge)
	}
	if l.MaxAgeGrace < 0 {
		bad("max_age_grace", "%s is negative", l.MaxAgeGrace)
	}
	for _, a := range l.Activity {
		if !slices.Contains([]string{"acquire", "file_write", "file_read", "tool_call"}, a) {
			bad("activity", "%.40q is not one of acquire, file_read, file_write, tool_call", a)
		}
	}
	if l.DrainTimeout < 0 || l.DrainTimeout > time.Hour {
		bad("drain_timeout", "%s is not 0s to 1h", l.DrainTimeout)
	}
	if l.ShutdownDelay < 0 || l.ShutdownDelay > 5*time.Minute {
		bad("shutdown_delay", "%s is not 0s to 5m", l.ShutdownDelay)
	}
}
