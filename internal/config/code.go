package config

import (
	"fmt"
	"maps"
	"slices"
)

// CodeExecution says how agents get their tools and run code.
type CodeExecution struct {
	CodeRules `yaml:",inline"`
	// RegenerateOnStartup makes all wrappers anew for the first thread that needs them after a start;
	// else those of an earlier start are used when the tools are the same.
	RegenerateOnStartup bool `yaml:"regenerate_on_startup"`
	// Tenants have rules of their own, by the tenant's name; what such a rule leaves out is as for all.
	// The variable holds the same as YAML, such as {acme: {mode: always}}.
	Tenants map[string]TenantRules `yaml:"tenants"`
}

// CodeRules are what can differ from tenant to tenant.
type CodeRules struct {
	// Enabled offers execute_code to agents. Without it every tool is offered directly.
	Enabled bool `yaml:"enabled"`
	// Mode is auto, always or code (tools are called by code), never or direct (tools are registered
	// with the model).
	Mode string `yaml:"mode"`
	// AutoThresholdTokens is how many tokens the definitions may have that the mode auto still offers directly.
	AutoThresholdTokens int `yaml:"auto_threshold_tokens"`
	// AutoThreshold is the older form, a number of tools; nil: it is not used.
	AutoThreshold *int `yaml:"auto_threshold"`
	// Language is that of execute_code when a call names none.
	Language string `yaml:"language"`
	// SandboxTimeout is how many seconds code may run when a call does not say, 1 to 120.
	SandboxTimeout int `yaml:"sandbox_timeout"`
	// MaxOutputChars is how much of stdout is shown when a call does not say.
	MaxOutputChars int `yaml:"max_output_chars"`
}

// TenantRules are CodeRules that may be left out.
type TenantRules struct {
	Enabled             *bool   `yaml:"enabled"`
	Mode                *string `yaml:"mode"`
	AutoThresholdTokens *int    `yaml:"auto_threshold_tokens"`
	AutoThreshold       *int    `yaml:"auto_threshold"`
	Language            *string `yaml:"language"`
	SandboxTimeout      *int    `yaml:"sandbox_timeout"`
	MaxOutputChars      *int    `yaml:"max_output_chars"`
}

// Of returns the rules of a tenant.
func (c *CodeExecution) Of(tenant string) CodeRules {
	r, own := c.CodeRules, c.Tenants[tenant]
	override(&r.Enabled, own.Enabled)
	override(&r.Mode, own.Mode)
	if own.AutoThresholdTokens != nil || own.AutoThreshold != nil { // a tenant's own limit wins in either form
		r.AutoThreshold = own.AutoThreshold
	}
	override(&r.AutoThresholdTokens, own.AutoThresholdTokens)
	override(&r.Language, own.Language)
	override(&r.SandboxTimeout, own.SandboxTimeout)
	override(&r.MaxOutputChars, own.MaxOutputChars)
	return r
}

func override[T any](field, own *T) {
	if own != nil {
		*field = *own
	}
}

// tokensPerTool is what a tool counts in the older form of the threshold. Its default was 20 tools.
const (
	tokensPerTool     = 150
	defaultAutoTokens = 20 * tokensPerTool
)

// AutoTokens returns how many tokens the definitions may have that the mode auto still offers directly.
func (r CodeRules) AutoTokens() int {
	if r.AutoThreshold != nil {
		return *r.AutoThreshold * tokensPerTool
	}
	return r.AutoThresholdTokens
}

// modes are the names of a mode, those of the API and those of older configurations.
var modes = map[string]string{"auto": "auto", "always": "code", "code": "code", "never": "direct", "direct": "direct"}

// APIMode is the mode by its name in the API: direct, code or auto.
func (r CodeRules) APIMode() string { return modes[r.Mode] }

// Bounds of the rules; those of the API.
const (
	maxCodeSeconds = 120
	maxOutputChars = 1 << 20
	maxThreshold   = 100_000 // tools
)

// check reports every value that cannot be right, of all tenants.
func (c *CodeExecution) check(bad func(key, format string, args ...any)) {
	twice := func(at string) {
		bad(at+".auto_threshold", "it is the older form of auto_threshold_tokens, and both are set: keep auto_threshold_tokens")
	}
	c.CodeRules.check("code_execution", bad)
	if c.AutoThreshold != nil && c.AutoThresholdTokens != defaultAutoTokens {
		twice("code_execution")
	}
	for _, tenant := range slices.Sorted(maps.Keys(c.Tenants)) {
		at := "code_execution.tenants." + tenant
		c.Of(tenant).check(at, bad)
		if own := c.Tenants[tenant]; own.AutoThreshold != nil && own.AutoThresholdTokens != nil {
			twice(at)
		}
	}
}

func (r CodeRules) check(at string, bad func(key, format string, args ...any)) {
	oneOf := func(key, v string, allowed []string) {
		if !slices.Contains(allowed, v) {
			bad(at+"."+key, "%q is not one of %v", v, allowed)
		}
	}
	between := func(key string, v, least, most int) {
		if v < least || v > most {
			bad(at+"."+key, "%s", fmt.Sprintf("%d: want %d to %d", v, least, most))
		}
	}
	oneOf("mode", r.Mode, slices.Sorted(maps.Keys(modes)))
	oneOf("language", r.Language, []string{"bash", "javascript", "python", "typescript"})
	between("auto_threshold_tokens", r.AutoThresholdTokens, 0, maxThreshold*tokensPerTool)
	if r.AutoThreshold != nil {
		between("auto_threshold", *r.AutoThreshold, 0, maxThreshold)
	}
	between("sandbox_timeout", r.SandboxTimeout, 1, maxCodeSeconds)
	between("max_output_chars", r.MaxOutputChars, 1, maxOutputChars)
}
