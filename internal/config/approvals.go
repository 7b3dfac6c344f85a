package config

import (
	"net"
	"net/url"
	"time"
)

// Approvals says how people are asked about calls that may be made only when one of them says so.
type Approvals struct {
	// Timeout is how long a call waits; without a decision by then it is denied. A decision whose call is gone
	// stands as long, for the same call made again.
	Timeout time.Duration `yaml:"timeout"`
	// WaitPerExec is for how long, altogether, an exec's own deadline stands still while its calls wait.
	WaitPerExec time.Duration `yaml:"wait_per_exec"`
	// WebhookURL is told of each request; empty: none. WebhookSecret signs what is said, both ways.
	WebhookURL    string `yaml:"webhook_url"`
	WebhookSecret string `yaml:"webhook_secret"`
}

// minSecret is the least of characters of WebhookSecret: a caller who knows it can decide.
const minSecret = 32

func (a Approvals) check(bad func(key, format string, args ...any)) {
	for key, d := range map[string]time.Duration{"approvals.timeout": a.Timeout, "approvals.wait_per_exec": a.WaitPerExec} {
		if d < time.Second || d > time.Hour {
			bad(key, "%s is not 1s to 1h", d)
		}
	}
	if a.WebhookURL == "" {
		return
	}
	u, err := url.Parse(a.WebhookURL)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !loopbackHost(u.Hostname())) {
		bad("approvals.webhook_url", "is not https://host[:port]/path; http:// is for this machine alone")
	}
	if len(a.WebhookSecret) < minSecret {
		bad("approvals.webhook_secret", "has less than %d characters", minSecret)
	}
}

func loopbackHost(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
