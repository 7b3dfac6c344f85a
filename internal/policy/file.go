package policy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // zones of rules mean the same on every machine
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/skerry-sandbox/skerry/internal/platform/boundedregexp"
	"github.com/skerry-sandbox/skerry/internal/platform/editdistance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Parse reads a file of rules, compiles its conditions and runs its tests. An error is Problems: all of them, each
// with its line and field.
func Parse(text []byte) (*Rules, error) {
	if len(text) > MaxFile {
		return nil, Problems{{Text: fmt.Sprintf("the file has %d bytes, at most %d", len(text), MaxFile)}}
	}
	root, problem := document(text)
	if problem != nil {
		return nil, Problems{*problem}
	}
	p := &parser{rules: &Rules{Text: text, Digest: digest(text)}}
	p.file(root)
	if len(p.problems) == 0 {
		p.runTests()
	}
	if len(p.problems) > 0 {
		return nil, p.problems
	}
	return p.rules, nil
}

func document(text []byte) (*yaml.Node, *Problem) {
	const want = "want a mapping with version, default and rules"
	if !utf8.Valid(text) {
		return nil, &Problem{Text: "the file is not UTF-8"}
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, &Problem{Text: "the file is empty: " + want}
		}
		return nil, &Problem{Text: err.Error()}
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, &Problem{Line: more.Line, Text: "there is a second document; a file of rules is one"}
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, &Problem{Line: doc.Line, Text: want}
	}
	if a := alias(&doc); a != nil {
		return nil, &Problem{Line: a.Line, Text: fmt.Sprintf("*%s stands for something else; a file of rules says everything where it counts", a.Value)}
	}
	return doc.Content[0], nil
}

// alias finds an alias, whose own value is the name of what it stands for: a reader of one value would take that.
func alias(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n
	}
	for _, x := range n.Content {
		if a := alias(x); a != nil {
			return a
		}
	}
	return nil
}

// parser collects what is wrong.
type parser struct {
	rules    *Rules
	problems Problems
}

func (p *parser) bad(n *yaml.Node, field, format string, args ...any) {
	if len(p.problems) < 50 {
		p.problems = append(p.problems, Problem{n.Line, field, fmt.Sprintf(format, args...)})
	}
}

// fields hands each member of a mapping to its reader. Unknown and double ones are problems.
func (p *parser) fields(n *yaml.Node, at string, readers map[string]func(n *yaml.Node, field string)) map[string]bool {
	seen := map[string]bool{}
	if n.Kind != yaml.MappingNode {
		p.bad(n, at, "want a mapping of %s", strings.Join(sortedNames(readers), ", "))
		return seen
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		field := joined(at, key.Value)
		read, known := readers[key.Value]
		switch {
		case !known:
			p.bad(key, field, "is not known%s; there are %s", maybe(key.Value, sortedNames(readers)), strings.Join(sortedNames(readers), ", "))
		case seen[key.Value]:
			p.bad(key, field, "is there twice")
		default:
			seen[key.Value] = true
			read(value, field)
		}
	}
	return seen
}

func joined(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

func sortedNames[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// maybe names what a word may have been meant to be.
func maybe(word string, known []string) string {
	best, least := "", 3
	for _, k := range known {
		if d := editdistance.Of(word, k); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", best)
}

func (p *parser) file(root *yaml.Node) {
	f := p.rules
	seen := p.fields(root, "", map[string]func(*yaml.Node, string){
		"version": func(n *yaml.Node, at string) {
			if n.Value != "1" {
				p.bad(n, at, "%q is none that this server knows; want 1", n.Value)
			}
		},
		"default":      func(n *yaml.Node, at string) { f.byDefault = p.effect(n, at) },
		"rules":        func(n *yaml.Node, at string) { p.list(n, at, maxRules, p.rule) },
		"capabilities": func(n *yaml.Node, at string) { p.list(n, at, maxRules, p.grant) },
		"tests":        func(n *yaml.Node, at string) { p.list(n, at, maxTests, p.test) },
	})
	if !seen["version"] {
		p.bad(root, "version", "is missing; want 1")
	}
	if !seen["default"] {
		p.bad(root, "default", "is missing: what happens when no rule decides? want allow, require_approval or deny")
	}
}

// list hands each entry of a sequence to a reader.
func (p *parser) list(n *yaml.Node, at string, most int, read func(n *yaml.Node, field string)) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
	case n.Kind != yaml.SequenceNode:
		p.bad(n, at, "want a list")
	case len(n.Content) > most:
		p.bad(n, at, "%d entries, at most %d", len(n.Content), most)
	default:
		for i, x := range n.Content {
			read(x, fmt.Sprintf("%s[%d]", at, i))
		}
	}
}

func (p *parser) scalar(n *yaml.Node, at string) (string, bool) {
	if n.Kind != yaml.ScalarNode {
		p.bad(n, at, "want one value")
		return "", false
	}
	return n.Value, true
}

func (p *parser) boolean(n *yaml.Node, at string) bool {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" {
		p.bad(n, at, "want true or false")
	}
	return strings.EqualFold(n.Value, "true") // YAML also has True and TRUE
}

func (p *parser) effect(n *yaml.Node, at string) Effect {
	e := Effect(n.Value)
	if e.strength() == 0 {
		p.bad(n, at, "%q is none; want allow, require_approval or deny", n.Value)
	}
	return e
}

var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

func (p *parser) rule(n *yaml.Node, at string) {
	r := &rule{line: n.Line, match: match{kinds: []Kind{KindToolCall}}}
	seen := p.fields(n, at, map[string]func(*yaml.Node, string){
		"id": func(n *yaml.Node, at string) {
			r.id = n.Value
			if !idPattern.MatchString(r.id) {
				p.bad(n, at, "%.80q: want 1 to 64 of the characters A-Z a-z 0-9 _ . -, beginning with a letter or digit", r.id)
			}
			if slices.ContainsFunc(p.rules.rules, func(o *rule) bool { return o.id == r.id }) {
				p.bad(n, at, "%s is another rule's id", r.id)
			}
		},
		"effect": func(n *yaml.Node, at string) { r.effect = p.effect(n, at) },
		"match":  func(n *yaml.Node, at string) { p.match(n, at, &r.match, &r.held) },
		"when":   func(n *yaml.Node, at string) { r.when = p.condition(n, at, "when", &r.held) },
		"unless": func(n *yaml.Node, at string) { r.unless = p.condition(n, at, "unless", &r.held) },
		"reason": func(n *yaml.Node, at string) {
			r.reason = strings.Join(strings.Fields(n.Value), " ")
			if utf8.RuneCountInString(r.reason) > maxText {
				p.bad(n, at, "has more than %d characters", maxText)
			}
		},
		"limit":  func(n *yaml.Node, at string) { r.limit = p.limit(n, at) },
		"redact": func(n *yaml.Node, at string) { r.redact = p.redaction(n, at) },
	})
	if !seen["id"] {
		p.bad(n, at+".id", "is missing: decisions name the rule by it")
	}
	if !seen["effect"] && !seen["limit"] && !seen["redact"] {
		p.bad(n, at+".effect", "is missing; want allow, require_approval or deny (a rule that only limits or redacts needs none)")
	}
	if (r.limit != nil && (r.limit.bytes > 0 || r.limit.time > 0) || !r.redact.Result.empty()) && !slices.Equal(r.match.kinds, []Kind{KindToolCall}) {
		p.bad(n, at, "bytes, time and redacted results are those of tool calls; take the other kinds out of match.kind")
	}
	if r.match.allowed != nil && !slices.Equal(r.match.kinds, []Kind{KindToolCall}) {
		p.bad(n, at+".match.allowed_tools", "is of tool calls; take the other kinds out of match.kind")
	}
	r.dynamic = r.when != nil || r.unless != nil || r.match.dynamic()
	p.rules.rules = append(p.rules.rules, r)
}

func (p *parser) condition(n *yaml.Node, at, word string, held *[]string) *condition {
	text, ok := p.scalar(n, at)
	if !ok {
		return nil
	}
	c, err := compile(text)
	if err != nil {
		p.bad(n, at, "%s", err)
		return nil
	}
	c.text = word + ": " + strings.Join(strings.Fields(text), " ")
	*held = append(*held, c.text)
	return c
}

func (p *parser) match(n *yaml.Node, at string, m *match, held *[]string) {
	patterns := func(into *[]string) func(*yaml.Node, string) {
		return func(n *yaml.Node, at string) {
			*into = p.patterns(n, at)
			*held = append(*held, at[strings.LastIndexByte(at, '.')+1:]+": "+strings.Join(*into, " "))
		}
	}
	boolean := func(name string, into **bool) func(*yaml.Node, string) {
		return func(n *yaml.Node, at string) {
			v := p.boolean(n, at)
			*into = &v
			*held = append(*held, fmt.Sprintf("%s: %t", name, v))
		}
	}
	p.fields(n, at, map[string]func(*yaml.Node, string){
		"kind": func(n *yaml.Node, at string) {
			m.kinds = nil
			for _, k := range p.patterns(n, at) {
				known := []string{string(KindToolCall), string(KindUpstream), string(KindExec), string(KindCode), string(KindSkillRun)}
				if !slices.Contains(known, k) {
					p.bad(n, at, "%q is none%s; there are %s", k, maybe(k, known), strings.Join(known, ", "))
				}
				m.kinds = append(m.kinds, Kind(k))
			}
		},
		"server": patterns(&m.servers), "tool": patterns(&m.tools), "skill": patterns(&m.skills),
		"user": patterns(&m.users), "tenant": patterns(&m.tenants), "role": patterns(&m.roles),
		"untrusted": boolean("untrusted", &m.untrusted), "lookalike": boolean("lookalike", &m.lookalike),
		"allowed_tools": boolean("allowed_tools", &m.allowed),
		"annotations": func(n *yaml.Node, at string) {
			readers := map[string]func(*yaml.Node, string){}
			for _, name := range hintNames {
				readers[name] = func(n *yaml.Node, at string) {
					h := hint{name, p.boolean(n, at)}
					m.annotations = append(m.annotations, h)
					*held = append(*held, fmt.Sprintf("annotations.%s: %t", h.name, h.want))
				}
			}
			p.fields(n, at, readers)
		},
		"time": func(n *yaml.Node, at string) {
			m.hours = p.hours(n, at)
			*held = append(*held, "time")
		},
	})
}

// patterns reads a word or a list of words.
func (p *parser) patterns(n *yaml.Node, at string) []string {
	nodes := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		nodes = n.Content
	}
	list := []string{}
	for _, x := range nodes {
		if x.Kind != yaml.ScalarNode || x.Value == "" || len(x.Value) > 256 {
			p.bad(x, at, "want a name of 1 to 256 bytes, in which * stands for any characters, or a list of them")
			continue
		}
		list = append(list, x.Value)
	}
	if len(list) == 0 || len(list) > maxPatterns {
		p.bad(n, at, "%d names; want 1 to %d", len(list), maxPatterns)
	}
	return list
}

func (p *parser) hours(n *yaml.Node, at string) *hours {
	h := &hours{zone: time.UTC}
	clock := func(into *int) func(*yaml.Node, string) {
		return func(n *yaml.Node, at string) {
			t, err := time.Parse("15:04", n.Value)
			if err != nil && n.Value != "24:00" {
				p.bad(n, at, "%q: want a time of the day as \"18:30\", in quotes", n.Value)
			}
			if *into = t.Hour()*60 + t.Minute(); n.Value == "24:00" {
				*into = wholeDay
			}
		}
	}
	p.fields(n, at, map[string]func(*yaml.Node, string){
		"days": func(n *yaml.Node, at string) {
			for _, d := range p.patterns(n, at) {
				i := slices.Index(dayNames, strings.ToLower(d))
				if i < 0 {
					p.bad(n, at, "%q is no day; want %s", d, strings.Join(dayNames, ", "))
				}
				h.days = append(h.days, time.Weekday(i))
			}
		},
		"from": clock(&h.from), "to": clock(&h.to),
		"zone": func(n *yaml.Node, at string) {
			zone, err := time.LoadLocation(n.Value)
			if err != nil || n.Value == "Local" || n.Value == "" {
				p.bad(n, at, "%q is no time zone; want one as Europe/Berlin, or UTC", n.Value)
				return
			}
			h.zone = zone
		},
	})
	return h
}

var limitBy = []string{"tenant", "user", "thread", "key", "tool"}

func (p *parser) limit(n *yaml.Node, at string) *limit {
	l := &limit{by: []string{"user"}}
	duration := func(into *time.Duration, most time.Duration) func(*yaml.Node, string) {
		return func(n *yaml.Node, at string) {
			d, err := time.ParseDuration(n.Value)
			if err != nil || d < time.Millisecond || d > most {
				p.bad(n, at, "%q: want a time of 1ms to %s, as 30s or 1m", n.Value, most)
			}
			*into = d
		}
	}
	seen := p.fields(n, at, map[string]func(*yaml.Node, string){
		"calls": func(n *yaml.Node, at string) { l.calls = int(p.number(n, at, 1_000_000)) },
		"per":   duration(&l.per, 24*time.Hour),
		"bytes": func(n *yaml.Node, at string) { l.bytes = p.number(n, at, 1<<40) },
		"time":  duration(&l.time, time.Hour),
		"by": func(n *yaml.Node, at string) {
			l.by = p.patterns(n, at)
			for _, by := range l.by {
				if by != "all" && !slices.Contains(limitBy, by) {
					p.bad(n, at, "%q is none; there are all, %s", by, strings.Join(limitBy, ", "))
				}
			}
		},
	})
	if seen["calls"] != seen["per"] {
		p.bad(n, at, "calls and per belong together: calls: 30, per: 1m")
	}
	if !seen["calls"] && !seen["bytes"] && !seen["time"] {
		p.bad(n, at, "limits nothing; want calls and per, bytes, or time")
	}
	return l
}

func (p *parser) number(n *yaml.Node, at string, most int64) int64 {
	v, err := strconv.ParseInt(n.Value, 10, 64)
	if err != nil || v < 1 || v > most {
		p.bad(n, at, "%q: want a number from 1 to %d", n.Value, most)
	}
	return v
}

// maxPatternSize bounds the expressions that each call's arguments and results are searched with.
const maxPatternSize = 2000

func (p *parser) redaction(n *yaml.Node, at string) Redaction {
	var r Redaction
	hidden := func(into *Hidden) func(*yaml.Node, string) {
		return func(n *yaml.Node, at string) {
			p.fields(n, at, map[string]func(*yaml.Node, string){
				"fields": func(n *yaml.Node, at string) { into.Fields = p.patterns(n, at) },
				"patterns": func(n *yaml.Node, at string) {
					for _, text := range p.patterns(n, at) {
						size, err := boundedregexp.Size(text)
						if err == nil && size > maxPatternSize {
							p.bad(n, at, "%.100q: its repetitions make %d steps of it, at most %d are allowed", text, size, maxPatternSize)
							continue
						}
						re, err := regexp.Compile(text)
						if err != nil {
							p.bad(n, at, "%s; want a regular expression of Go (RE2)", err)
							continue
						}
						if re.MatchString("") {
							p.bad(n, at, "%q fits nothing at all, too", text)
						}
						into.Patterns = append(into.Patterns, re)
					}
				},
			})
		}
	}
	p.fields(n, at, map[string]func(*yaml.Node, string){"args": hidden(&r.Args), "result": hidden(&r.Result)})
	if r.Args.empty() && r.Result.empty() {
		p.bad(n, at, "redacts nothing; want args or result with fields or patterns")
	}
	return r
}

func (p *parser) grant(n *yaml.Node, at string) {
	g := grant{match: match{kinds: []Kind{KindToolCall}}}
	seen := p.fields(n, at, map[string]func(*yaml.Node, string){
		"server": func(n *yaml.Node, at string) { g.match.servers = p.patterns(n, at) },
		"tool":   func(n *yaml.Node, at string) { g.match.tools = p.patterns(n, at) },
		"needs":  func(n *yaml.Node, at string) { g.needs = p.patterns(n, at) },
	})
	if !seen["needs"] || !seen["server"] && !seen["tool"] {
		p.bad(n, at, "want server or tool, and needs: the capabilities that those tools need")
	}
	p.rules.capabilities = append(p.rules.capabilities, g)
}

// test is one entry of "tests": a call, and what must come of it.
type test struct {
	line   int
	name   string
	sample Sample
	expect Effect
	rule   string
}

func (p *parser) test(n *yaml.Node, at string) {
	t := test{line: n.Line}
	seen := p.fields(n, at, map[string]func(*yaml.Node, string){
		"name": func(n *yaml.Node, _ string) { t.name = n.Value },
		"call": func(n *yaml.Node, at string) {
			text, err := yamlJSON(n)
			if err == nil {
				t.sample, err = ReadSample(text)
			}
			if err != nil {
				p.bad(n, at, "%s", err)
			}
		},
		"expect": func(n *yaml.Node, at string) { t.expect = p.effect(n, at) },
		"rule":   func(n *yaml.Node, _ string) { t.rule = n.Value },
	})
	if !seen["call"] || !seen["expect"] {
		p.bad(n, at, "want call and expect")
	}
	p.rules.tests = append(p.rules.tests, t)
}

// runTests checks that the rules do what the file itself says of them.
func (p *parser) runTests() {
	set := Set{Global: p.rules}
	for i, t := range p.rules.tests {
		d := set.Decide(context.Background(), t.sample.Request())
		node := &yaml.Node{Line: t.line}
		at := fmt.Sprintf("tests[%d]", i)
		if d.Effect() != t.expect {
			p.bad(node, at, "%q gives %s%s; want %s", t.name, d.Effect(), because(d, d.Effect()), t.expect)
			continue
		}
		if t.rule != "" && !slices.ContainsFunc(d.Why.Rules, func(r Reason) bool { return r.Rule == t.rule }) {
			p.bad(node, at, "%q gives %s, as wanted, but the rule %s does not hold", t.name, d.Effect(), t.rule)
		}
	}
}

// CheckTenant reports what of a file cannot be a tenant's own rules.
func (f *Rules) CheckTenant() error {
	if f.byDefault == Allow {
		return nil
	}
	return sandbox.Errorf(sandbox.Invalid, "default: want allow: a tenant's own rules can only narrow those of the server, which decide what no rule does")
}
