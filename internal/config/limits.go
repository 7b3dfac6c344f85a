package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Limits bound what tenants, users and keys take of all servers together (docs/limits.md). Tenants are named by their
// name, users by tenant/user, keys by their id. "*" is for all, "tenant/*" for all users of one: what a more certain
// name leaves out is as for the less certain one. A variable holds the same as YAML: {"*": {execs: 100}}.
type Limits struct {
	Tenants map[string]OwnLimits `yaml:"tenants"`
	Users   map[string]OwnLimits `yaml:"users"`
	Keys    map[string]OwnLimits `yaml:"keys"`
}

// LimitRules are limits; 0 is none.
type LimitRules struct {
	// RequestsPerMinute is how many requests are answered on average, RequestsBurst how many at once; 0: those of ten seconds.
	RequestsPerMinute int `yaml:"requests_per_minute"`
	RequestsBurst     int `yaml:"requests_burst"`
	// Execs bounds the running execs, Sandboxes the living sandboxes.
	Execs     int `yaml:"execs"`
	Sandboxes int `yaml:"sandboxes"`
	// CPUSecondsPerDay bounds the CPU time of sandboxes from one midnight (UTC) to the next.
	CPUSecondsPerDay int `yaml:"cpu_seconds_per_day"`
	// DiskMiB bounds the files of all threads. It is not one of keys.
	DiskMiB int `yaml:"disk_mib"`
	// ToolCallsPerDay and ToolCallsPerMinute bound the calls of tools, by code and by agents.
	ToolCallsPerDay    int `yaml:"tool_calls_per_day"`
	ToolCallsPerMinute int `yaml:"tool_calls_per_minute"`
	ToolCallsBurst     int `yaml:"tool_calls_burst"`
}

// OwnLimits are LimitRules that may be left out.
type OwnLimits struct {
	RequestsPerMinute  *int `yaml:"requests_per_minute"`
	RequestsBurst      *int `yaml:"requests_burst"`
	Execs              *int `yaml:"execs"`
	Sandboxes          *int `yaml:"sandboxes"`
	CPUSecondsPerDay   *int `yaml:"cpu_seconds_per_day"`
	DiskMiB            *int `yaml:"disk_mib"`
	ToolCallsPerDay    *int `yaml:"tool_calls_per_day"`
	ToolCallsPerMinute *int `yaml:"tool_calls_per_minute"`
	ToolCallsBurst     *int `yaml:"tool_calls_burst"`
}

// everybody is the name for all.
const everybody = "*"

// OfTenant returns the limits of a tenant.
func (l *Limits) OfTenant(tenant string) LimitRules { return pick(l.Tenants, everybody, tenant) }

// OfUser returns the limits of a user of a tenant.
func (l *Limits) OfUser(tenant, user string) LimitRules {
	if len(l.Users) == 0 { // no name is put together for each call
		return LimitRules{}
	}
	return pick(l.Users, everybody, tenant+"/"+everybody, tenant+"/"+user)
}

// OfKey returns the limits of a key.
func (l *Limits) OfKey(id string) LimitRules { return pick(l.Keys, everybody, id) }

func pick(all map[string]OwnLimits, names ...string) (r LimitRules) {
	if len(all) == 0 {
		return r
	}
	for _, name := range names {
		r = all[name].over(r)
	}
	return r
}

func (o OwnLimits) over(r LimitRules) LimitRules {
	override(&r.RequestsPerMinute, o.RequestsPerMinute)
	override(&r.RequestsBurst, o.RequestsBurst)
	override(&r.Execs, o.Execs)
	override(&r.Sandboxes, o.Sandboxes)
	override(&r.CPUSecondsPerDay, o.CPUSecondsPerDay)
	override(&r.DiskMiB, o.DiskMiB)
	override(&r.ToolCallsPerDay, o.ToolCallsPerDay)
	override(&r.ToolCallsPerMinute, o.ToolCallsPerMinute)
	override(&r.ToolCallsBurst, o.ToolCallsBurst)
	return r
}

// maxLimit is the largest limit: what is larger is none. maxRate keeps a minute dividable in nanoseconds.
const (
	maxLimit = 1_000_000_000
	maxRate  = 60_000_000
)

func (l *Limits) check(bad func(key, format string, args ...any)) {
	for _, name := range slices.Sorted(maps.Keys(l.Tenants)) {
		l.OfTenant(name).check("limits.tenants."+name, bad)
	}
	for _, name := range slices.Sorted(maps.Keys(l.Users)) {
		tenant, user, ok := strings.Cut(name, "/")
		if name != everybody && (!ok || tenant == "" || tenant == everybody || user == "") {
			bad("limits.users", "%.80q is not tenant/user, tenant/* or *", name)
			continue
		}
		l.Users[name].over(LimitRules{}).check("limits.users."+name, bad)
	}
	for _, name := range slices.Sorted(maps.Keys(l.Keys)) {
		r := l.OfKey(name)
		r.check("limits.keys."+name, bad)
		if r.DiskMiB != 0 {
			bad("limits.keys."+name+".disk_mib", "a key has no files; limit its user")
		}
	}
}

func (r LimitRules) check(at string, bad func(key, format string, args ...any)) {
	between := func(key string, n, most int) {
		if n < 0 || n > most {
			bad(at+"."+key, "%s", fmt.Sprintf("%d is not 0 (none) to %d", n, most))
		}
	}
	between("requests_per_minute", r.RequestsPerMinute, maxRate)
	between("requests_burst", r.RequestsBurst, maxRate)
	between("execs", r.Execs, maxLimit)
	between("sandboxes", r.Sandboxes, maxLimit)
	between("cpu_seconds_per_day", r.CPUSecondsPerDay, maxLimit)
	between("disk_mib", r.DiskMiB, maxLimit)
	between("tool_calls_per_day", r.ToolCallsPerDay, maxLimit)
	between("tool_calls_per_minute", r.ToolCallsPerMinute, maxRate)
	between("tool_calls_burst", r.ToolCallsBurst, maxRate)
}
