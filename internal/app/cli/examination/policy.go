package examination

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/app"
	"github.com/skerry-sandbox/skerry/internal/observe/doctor"
	"github.com/skerry-sandbox/skerry/internal/policy"
)

// policy reads the rules of the server and those of its tenants.
func (e *examination) policy(_ context.Context, r *doctor.Report) {
	file := app.PolicyFile(e.cfg)
	text, err := os.ReadFile(file)
	var rules *policy.Rules
	if err == nil {
		rules, err = policy.Parse(text)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && e.cfg.Policy == "":
		r.OK("", "the built-in rules count (skerry policy default)")
	case err != nil:
		r.Problem("", "mend the file; a server that runs goes by the rules from before, and does not start with these", "%s: %s", file, oneLine(err))
	default:
		r.OK("", "%s: digest %s, %d tests passed", file, rules.Digest, rules.Tests())
	}
	tenants, err := filepath.Glob(filepath.Join(e.cfg.Data, "policy", "tenants", "*.yaml"))
	if err != nil {
		return // only for a pattern that is wrong
	}
	for _, file := range tenants[:min(len(tenants), maxUserFiles)] {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		text, err := os.ReadFile(file)
		var rules *policy.Rules
		if err == nil {
			rules, err = policy.Parse(text)
		}
		if err == nil {
			err = rules.CheckTenant()
		}
		if err != nil {
			r.Problem(name, "mend the file; until then the tenant goes by the rules from before, or may do nothing", "%s: %s", file, oneLine(err))
		}
	}
}

// oneLine puts an error that has several lines into one.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
