package policy

import (
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// match is what "match" says. All that is given must fit; of a list, one entry.
type match struct {
	kinds       []Kind // never empty
	servers     []string
	tools       []string
	skills      []string
	users       []string
	roles       []string
	tenants     []string
	annotations []hint
	untrusted   *bool
	lookalike   *bool
	allowed     *bool // whether the skill's allowed-tools names the tool
	hours       *hours
}

// hint is an annotation with the value that a rule wants.
type hint struct {
	name string
	want bool
}

// hintNames are the annotations by which rules match, in the order of Annotations; "annotated" is whether there are any.
var hintNames = []string{"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint", "annotated"}

func (a Annotations) hint(name string) bool {
	switch name {
	case "readOnlyHint":
		return a.ReadOnly
	case "destructiveHint":
		return a.Destructive
	case "idempotentHint":
		return a.Idempotent
	case "openWorldHint":
		return a.OpenWorld
	}
	return a.Said
}

// fits reports whether the rule is about the request. restricts: in doubt about a tool's name it is.
func (m *match) fits(r *Request, restricts bool) bool {
	return m.static(r, restricts) && (m.skills == nil || anyFits(m.skills, r.Skill)) && m.fitsAllowed(r) && (m.hours == nil || m.hours.hold(r.Time))
}

// static is fits without what changes from call to call.
func (m *match) static(r *Request, restricts bool) bool {
	switch {
	case !slices.Contains(m.kinds, r.Kind),
		m.servers != nil && !anyFits(m.servers, r.Server),
		m.tools != nil && !toolFits(m.tools, r.Tool, restricts),
		m.users != nil && !anyFits(m.users, r.Thread.User),
		m.tenants != nil && !anyFits(m.tenants, r.Thread.Tenant),
		m.roles != nil && !anyFits(m.roles, string(r.Caller.Role)),
		m.untrusted != nil && *m.untrusted != r.Untrusted,
		m.lookalike != nil && *m.lookalike != lookalike(r.Tool):
		return false
	}
	for _, h := range m.annotations {
		if r.Annotations.hint(h.name) != h.want {
			return false
		}
	}
	return true
}

// dynamic says that calls of one tool by one caller may differ in whether they fit.
func (m *match) dynamic() bool { return m.skills != nil || m.allowed != nil || m.hours != nil }

// fitsAllowed compares allowed_tools. It says nothing of a call that no script of a skill makes, and of a skill that
// limits itself to no tools: neither true nor false fits those.
func (m *match) fitsAllowed(r *Request) bool {
	return m.allowed == nil || r.Skill != "" && len(r.AllowedTools) > 0 && r.named() == *m.allowed
}

// named reports whether the allowed-tools of the request's skill names its tool: as server__tool, mcp__server__tool,
// server:tool, or mcp__server for all tools of a server. An entry allows: it fits the exact name, or those that its
// * and ? stand for, and no name that only looks like it.
func (r *Request) named() bool {
	if lookalike(r.Tool) {
		return false
	}
	printed := sandbox.PrintedName(r.Server, r.Tool)
	names := []string{printed, "mcp__" + printed, r.Server + ":" + r.Tool, "mcp__" + sandbox.PrintedServer(r.Server)}
	return slices.ContainsFunc(names, func(name string) bool { return anyFits(r.AllowedTools, name) })
}

// toolFits matches a tool's name. A server chooses the names of its tools. So a restricting pattern ignores
// case, and treats a name as every name that it might look like. An allowing pattern takes names as they
// are.
func toolFits(patterns []string, name string, restricts bool) bool {
	if !restricts {
		return !lookalike(name) && anyFits(patterns, name)
	}
	if lookalike(name) {
		return true
	}
	name = strings.ToLower(name)
	return slices.ContainsFunc(patterns, func(p string) bool { return glob(strings.ToLower(p), name) })
}

func anyFits(patterns []string, s string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return glob(p, s) })
}

// lookalike reports whether a name has characters that can be taken for other ones: invisible ones, and letters of
// any script but Latin as ASCII has it, and those scripts whose letters look like no Latin ones.
func lookalike(name string) bool {
	for _, r := range name {
		if r > unicode.MaxASCII && !unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul) || r < ' ' || r == 0x7f {
			return true
		}
	}
	return false
}

// glob matches with * for any characters, also none, and ? for one.
func glob(pattern, s string) bool {
	p, t := []rune(pattern), []rune(s)
	star, mark := -1, 0
	i, j := 0, 0
	for j < len(t) {
		switch {
		case i < len(p) && p[i] == '*':
			star, mark = i, j
			i++
		case i < len(p) && (p[i] == '?' || p[i] == t[j]):
			i++
			j++
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}

// hours are times of the week. from may be later than to: then the night between belongs to the day on which it begins.
type hours struct {
	days     []time.Weekday // nil = all
	from, to int            // minutes of the day; both 0 = all day
	zone     *time.Location
}

const wholeDay = 24 * 60

var dayNames = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"} // by time.Weekday

func (h *hours) hold(at time.Time) bool {
	at = at.In(h.zone)
	now, day := at.Hour()*60+at.Minute(), at.Weekday()
	on := func(d time.Weekday) bool { return h.days == nil || slices.Contains(h.days, (d+7)%7) }
	switch {
	case h.from == h.to:
		return on(day)
	case h.from < h.to:
		return on(day) && now >= h.from && now < h.to
	}
	return on(day) && now >= h.from || on(day-1) && now < h.to
}
