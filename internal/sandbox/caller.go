package sandbox

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

// Role says what a caller may do. What each route takes stands beside it in internal/api/rest.
type Role string

// The roles. Each has all rights of the former ones, except RoleAuditor and RolePack.
const (
	RoleAgent     Role = "agent"     // uses the threads of its user
	RoleDeveloper Role = "developer" // and manages skills, plugins and logins of its user, and decides approvals
	RoleAdmin     Role = "admin"     // and administers its tenant
	RoleAuditor   Role = "auditor"   // reads the audit log of its tenant, and nothing else
	RolePack      Role = "pack"      // provides tool packs for its tenant, and nothing else
)

// Roles lists all there are.
func Roles() []Role { return []Role{RoleAgent, RoleDeveloper, RoleAdmin, RoleAuditor, RolePack} }

// Ways in which a caller has shown who it is.
const (
	ByNothing = "none" // the server wants no credential
	ByKey     = "key"  // a bearer key
	ByToken   = "jwt"  // a signed token of an identity provider
)

// Caller is who makes a request, as the credential says, with what the audit log keeps of the request.
type Caller struct {
	Owner        // for whom: another user of the tenant than Actor with On-Behalf-Of
	Role         Role
	Operator     bool     // administers what all tenants share: an administrator of the operators' tenant
	Capabilities []string // flat names that tools may require; sorted, none twice
	Threads      []string // the only threads that the credential is good for: names, or "prefix*"; nil = all
	Actor        string   // the user of the credential itself
	MayActFor    bool     // the credential may name other users in On-Behalf-Of
	KeyID        string   // the key, or the issuer's name for a token; "" when no credential is configured
	Method       string   // ByNothing, ByKey or ByToken
	RequestID    string
	TraceID      string // W3C, 32 hex digits; "" when nothing is traced
	Source       string // address of the peer
	UserAgent    string
}

// Thread names a thread of the caller's. Invalid: the id is none.
func (c Caller) Thread(id string) (Thread, error) {
	if err := CheckThreadID(id); err != nil {
		return Thread{}, err
	}
	return Thread{Owner: c.Owner, ID: id}, nil
}

// Admin reports whether the caller administers its tenant.
func (c Caller) Admin() bool { return c.Role == RoleAdmin }

// OnBehalf reports whether the caller acts for another user than its own.
func (c Caller) OnBehalf() bool { return c.Actor != "" && c.Actor != c.User }

// SamePrincipal reports whether two requests come from one principal with the same rights.
func (c Caller) SamePrincipal(o Caller) bool {
	return c.Owner == o.Owner && c.Role == o.Role && c.Operator == o.Operator && c.Actor == o.Actor && c.KeyID == o.KeyID && c.Method == o.Method &&
		slices.Equal(c.Capabilities, o.Capabilities) && slices.Equal(c.Threads, o.Threads)
}

// MayUse reports whether the credential is good for a thread.
func (c Caller) MayUse(thread string) bool {
	return c.Threads == nil || slices.ContainsFunc(c.Threads, func(p string) bool {
		prefix, any := strings.CutSuffix(p, "*")
		return p == thread || any && strings.HasPrefix(thread, prefix)
	})
}

// MaxCapabilities bounds the capabilities of a principal.
const MaxCapabilities = 256

var capabilityPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:/-]{0,127}$`)

// CheckCapabilities returns capabilities sorted, each once; nil for none. Invalid: one is not 1 to 128 of the
// characters A-Z a-z 0-9 _ . : / -, beginning with a letter or digit, or there are more than MaxCapabilities.
func CheckCapabilities(names []string) ([]string, error) {
	for _, n := range names {
		if !capabilityPattern.MatchString(n) {
			return nil, Errorf(Invalid, "capabilities: %.140q: use 1 to 128 of the characters A-Z a-z 0-9 _ . : / -, beginning with a letter or digit", n)
		}
	}
	sorted := slices.Compact(slices.Sorted(slices.Values(names)))
	if len(sorted) > MaxCapabilities {
		return nil, Errorf(Invalid, "capabilities: %d are more than %d", len(sorted), MaxCapabilities)
	}
	return sorted, nil
}

// AllCapabilities stands for all capabilities, where they are listed.
const AllCapabilities = "*"

// AllSkills in AcquireOptions.Skills stands for all skills that are on.
const AllSkills = "*"

// AcquireOptions is the body of PUT /api/threads/{t}/sandbox.
type AcquireOptions struct {
	Template string            // "" = default
	Labels   map[string]string // replaces the thread's labels when not nil
	Env      map[string]string // for every exec of this sandbox
	Skills   []string          // the thread has only these skills from now on; AllSkills among them: all; nil = as before
	// Capabilities are the only ones of the caller's capabilities that count in the thread from now on.
	// AllCapabilities among them: all that a caller has; nil = as before.
	Capabilities []string
	Mode         string        // "direct", "code", "auto" or ""
	Wait         time.Duration // how long to wait for a starting sandbox; 0: until it is ready
}

// DiskUsage is what a workspace holds.
type DiskUsage struct {
	Bytes int64 `json:"bytes"`
	Files int64 `json:"files"`
}

// ThreadView is a thread as the API shows it.
type ThreadView struct {
	ThreadInfo
	Workspace DiskUsage    `json:"workspace" doc:"Measured for this answer; zeros in a list"`
	Usage     *ThreadUsage `json:"usage,omitempty" doc:"As it was last written; absent when nothing was yet"`
	Sandbox   *Info        `json:"sandbox,omitempty"`
}

// ThreadUsage is what a thread used, as its servers wrote it some time ago.
type ThreadUsage struct {
	DiskBytes   *int64     `json:"disk_bytes,omitempty" doc:"Of the thread's files at measured_at; absent when they were not measured yet"`
	MeasuredAt  *time.Time `json:"measured_at,omitempty"`
	Execs       int64      `json:"execs" doc:"Those that ended"`
	ExecSeconds float64    `json:"exec_seconds" doc:"How long they took together"`
}
