package config

import (
	"path/filepath"
	"strings"
	"time"
)

// Workspaces says where the files of threads are kept besides the data folder.
type Workspaces struct {
	// Store is s3://bucket/prefix, with the settings of s3, or the absolute path of a folder that exists. Empty: they are
	// in the data folder alone.
	Store string `yaml:"workspaces"`
	// Mode is "sync": a change is kept before it is acknowledged; or "async": at most Delay later.
	Mode  string        `yaml:"workspaces_mode"`
	Delay time.Duration `yaml:"workspaces_delay"`
	// Encrypt encrypts what is kept for the keys of secrets.key_file.
	Encrypt bool `yaml:"workspaces_encrypt"`
	// UserEnvMiB bounds the environments that are kept for the sandboxes of one user together; 0: nothing
	// does.
	UserEnvMiB int `yaml:"user_env_mib"`
}

// SnapshotDelay is how long after a change it is saved; 0: before it is acknowledged.
func (w Workspaces) SnapshotDelay() time.Duration {
	if w.Mode == "sync" {
		return 0
	}
	return w.Delay
}

func (w *Workspaces) check(bad func(key, format string, args ...any)) {
	if bucket, ok := strings.CutPrefix(w.Store, "s3://"); w.Store != "" && (ok && (bucket == "" || bucket[0] == '/') || !ok && !filepath.IsAbs(w.Store)) {
		bad("workspaces", "%.200q is neither s3://bucket/prefix nor the absolute path of a folder", w.Store)
	}
	if w.Mode != "sync" && w.Mode != "async" {
		bad("workspaces_mode", "%q is neither sync nor async", w.Mode)
	}
	if w.UserEnvMiB < 0 || w.UserEnvMiB > 1<<20 {
		bad("user_env_mib", "%d is not 0 to %d", w.UserEnvMiB, 1<<20)
	}
	if w.Delay < 100*time.Millisecond || w.Delay > time.Hour {
		bad("workspaces_delay", "%s is not 100ms to 1h", w.Delay)
	}
}
