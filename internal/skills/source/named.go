package source

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skills/format"
)

// named is a skill of the other shape of a list, {"skills": {NAME: …}}, which other programs have. What it
// says of the place where scripts run is read: they always run in a sandbox of the thread. What cannot be had
// there is a finding.
type named struct {
	Source     string            `json:"source"`
	Path       string            `json:"path"`
	URL        string            `json:"url"`
	Trusted    bool              `json:"trusted"`
	EnvSecrets map[string]string `json:"env_secrets"`
	Template   string            `json:"template"`
	Executor   *executor         `json:"script_executor"`
}

// executor is where scripts run.
type executor struct {
	Type        string            `json:"type"`
	WorkingDir  string            `json:"working_dir"`
	Env         map[string]string `json:"env"`
	TimeoutSecs float64           `json:"timeout_secs"`
	Image       string            `json:"image"`
	Mounts      []string          `json:"mounts"`
	Network     string            `json:"network"`
	MemoryLimit string            `json:"memory_limit"`
	CPULimit    float64           `json:"cpu_limit"`
}

// secretPlace is a value that is a secret: ${NAME}.
var secretPlace = regexp.MustCompile(`^\$\{([A-Za-z_][A-Za-z0-9_.-]{0,127})\}$`)

// entry returns the source that a named skill is, and what is wrong with it, or "".
func (n named) entry(name string) (e Entry, bad string) {
	if err := format.CheckName(name); err != nil {
		return e, sandbox.TextOf(err)
	}
	e = Entry{Path: home(n.Path), URL: n.URL, Trusted: &n.Trusted, EnvSecrets: n.EnvSecrets, Template: n.Template, skill: name}
	scheme, _, _ := strings.Cut(n.URL, "://")
	switch {
	case n.Source == "directory":
		e.Type = TypeDir
	case n.Source == "embedded":
		e.Type, e.Name = TypeEmbedded, name
	case n.Source != "archive":
		return e, fmt.Sprintf("the source %.40q is not directory, archive or embedded", n.Source)
	case n.URL == "":
		e.Type = TypeFile
	case scheme == "s3":
		e.Type = TypeS3
	default:
		e.Type = TypeHTTPS
	}
	if n.Executor == nil {
		return e, ""
	}
	bad = n.Executor.apply(&e)
	return e, bad
}

// home is a path whose ~ is the folder of who runs the program.
func home(p string) string {
	rest, ok := strings.CutPrefix(p, "~/")
	if dir, err := os.UserHomeDir(); ok && err == nil {
		return filepath.Join(dir, rest)
	}
	return p
}

// apply takes over what an executor says, and says what is wrong with it, or "".
func (x executor) apply(e *Entry) (bad string) {
	if x.Type != "subprocess" && x.Type != "docker" {
		return fmt.Sprintf("script_executor: the type %.40q is not subprocess or docker; scripts run in a sandbox of their thread", x.Type)
	}
	e.Seconds = x.TimeoutSecs
	for k, v := range x.Env {
		place := secretPlace.FindStringSubmatch(v)
		switch {
		case place != nil:
			e.EnvSecrets = with(e.EnvSecrets, k, place[1])
		case strings.Contains(v, "${"):
			return fmt.Sprintf("script_executor: env.%.80s: a value is a text, or ${NAME} of a secret alone", k)
		default:
			e.Env = with(e.Env, k, v)
		}
	}
	for _, set := range []struct {
		field string
		given bool
		why   string
	}{
		{"working_dir", x.WorkingDir != "", "scripts start in /mnt/user-data/workspace"},
		{"image", x.Image != "", "the template of a sandbox names its image; the entry's own template may be another one than the thread's"},
		{"mounts", len(x.Mounts) > 0, "a sandbox has no folders of the host"},
		{"network", x.Network != "" && x.Network != "none", "a sandbox has no network"},
		{"memory_limit", x.MemoryLimit != "", "the template of a sandbox has the limits"},
		{"cpu_limit", x.CPULimit != 0, "the template of a sandbox has the limits"},
	} {
		if set.given {
			e.findings = append(e.findings, sandbox.Finding{
				Rule: "executor-ignored", Severity: sandbox.SeverityInfo, Message: fmt.Sprintf("script_executor.%s of skills.json has no effect: %s", set.field, set.why),
			})
		}
	}
	return ""
}

// with is a map with one more value.
func with(m map[string]string, k, v string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[k] = v
	return m
}
