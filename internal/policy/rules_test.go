package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func rules(t testing.TB, text string) *Rules {
	t.Helper()
	f, err := Parse([]byte("version: 1\n" + text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return f
}

func decide(t testing.TB, f *Rules, sample string) Decision {
	t.Helper()
	s, err := ReadSample([]byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	return (&Set{Global: f}).Decide(context.Background(), s.Request())
}

func held(d Decision) string {
	var ids []string
	for _, r := range d.Why.Rules {
		ids = append(ids, r.Rule)
	}
	return strings.Join(ids, " ")
}

// TestWordsOfYAML: True is true, and no value is another one than it looks like.
func TestWordsOfYAML(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"true", "True", "TRUE"} {
		f := rules(t, "default: allow\nrules:\n- {id: r, effect: deny, match: {annotations: {destructiveHint: "+word+"}}}")
		if d := decide(t, f, `{"server":"s","tool":"t","annotations":{"destructiveHint":true}}`); d.Effect() != Deny {
			t.Errorf("%s: a destructive tool: %s", word, d.Effect())
		}
		if d := decide(t, f, `{"server":"s","tool":"t","annotations":{"destructiveHint":false}}`); d.Effect() != Allow {
			t.Errorf("%s: another tool: %s", word, d.Effect())
		}
	}
	_, err := Parse([]byte("version: 1\ndefault: allow\nrules:\n- {id: a, effect: &allow deny}\n- {id: b, effect: *allow}\n"))
	var p Problems
	if !errors.As(err, &p) || p[0].Line != 5 || !strings.Contains(p[0].Text, "*allow stands for something else") {
		t.Errorf("an alias: %v", err)
	}
}

// TestNamesInAnotherCase: an argument whose name differs only in case from one that a rule looks at is not judged, and
// so denied: Go's encoding/json, and servers of other languages, take it for that name.
func TestNamesInAnotherCase(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ when, args, want string }{
		{`args.path.startsWith("/tmp/")`, `{"path":"/tmp/a"}`, "allow"},
		{`args.path.startsWith("/tmp/")`, `{"path":"/tmp/a","Path":"/etc/passwd"}`, "deny"},
		{`!has(args.path) || args.path == "x"`, `{"PATH":"/etc/passwd"}`, "deny"},
		{`!has(args.path) || args.path == "x"`, `{"other":1}`, "allow"},
		{`args.?path.orValue("") == ""`, `{"pATH":"/etc/passwd"}`, "deny"},
		{`!("path" in args)`, `{"Path":1}`, "deny"},
		{`args["skip"] == 1`, `{"skip":1,"\u017fkip":2}`, "deny"}, // ſ folds to s
		{`args["key"] == 1`, `{"key":1,"\u212aey":2}`, "deny"},    // the Kelvin sign folds to k
		{`args["key"] == 1`, `{"key":1,"\uff4bey":2}`, "deny"},    // a wide k
		{`args.user.id == 1`, `{"user":{"id":1,"ID":2}}`, "deny"},
		{`args.user.id == 1`, `{"user":{"id":1},"other":{"ID":2}}`, "allow"},
		{`!has(args.user) || args.user.id == 1`, `{"User":{"id":2}}`, "deny"},
		{`args.list.all(x, !has(x.id) || x.id == 1)`, `{"list":[{"id":1},{"Id":2}]}`, "deny"},
		{`args.all(k, k != "path")`, `{"Path":1}`, "deny"},
		{`args.method == "delete"`, `{"method":"delete","data":{"DELETE":1,"Delete":2}}`, "allow"},
		{`args.n == 1`, `{"n":1,"data":{"a":1,"A":2}}`, "allow"}, // data
		{`args.n == 1`, `{"n":1,"data":{"a":1,"a":2}}`, "deny"},
		{`args.n == 1`, `{"n":1,"a":1,"A":2}`, "deny"},
	} {
		rules := rules(t, "default: deny\nrules:\n- {id: r, effect: allow, match: {tool: one}, when: '"+c.when+"'}")
		set := &Set{Global: rules}
		d := set.Decide(t.Context(), Request{Kind: KindToolCall, Caller: caller, Thread: thread, Server: "s", Tool: "one", Arguments: json.RawMessage(c.args)})
		if string(d.Effect()) != c.want {
			t.Errorf("%s of %s: %s, want %s: %+v", c.when, c.args, d.Effect(), c.want, d.Why)
		}
	}
}

// TestDefaultRules: the built-in rules pass their own tests, and leave tools without annotations alone.
func TestDefaultRules(t *testing.T) {
	if len(Default().tests) < 5 {
		t.Error("the built-in rules have few tests")
	}
	for _, c := range []struct{ call, want string }{
		{`{"server":"s","tool":"delete_everything","args":{"all":true}}`, "allow"},
		{`{"kind":"exec","args":{"command":"rm -rf /"}}`, "allow"},
		{`{"kind":"skill_run","skill":"own"}`, "allow"},
		{`{"server":"s","tool":"x","annotations":{"destructiveHint":true}}`, "allow"},
		{`{"server":"s","tool":"x","annotations":{"destructiveHint":true,"openWorldHint":true,"readOnlyHint":true}}`, "allow"},
		{`{"server":"s","tool":"読む"}`, "allow"},
		{`{"server":"s","tool":"re\u200bad"}`, "deny"},
	} {
		if d := decide(t, Default(), c.call); string(d.Effect()) != c.want {
			t.Errorf("%s: %s (%s), want %s", c.call, d.Effect(), held(d), c.want)
		}
	}
}

// TestCombination: of all rules that hold the strongest effect counts, whatever their order; without one, the default.
func TestCombination(t *testing.T) {
	effects := []string{"allow", "require_approval", "deny"}
	for _, byDefault := range effects {
		for mask := range 8 {
			var chosen []string
			for i, e := range effects {
				if mask&(1<<i) != 0 {
					chosen = append(chosen, e)
				}
			}
			want := byDefault
			if len(chosen) > 0 {
				want = chosen[len(chosen)-1]
			}
			for range 2 {
				text := "default: " + byDefault + "\nrules:\n- {id: other, effect: deny, match: {tool: other}}\n"
				for i, e := range chosen {
					text += fmt.Sprintf("- {id: r%d, effect: %s}\n", i, e)
				}
				d := decide(t, rules(t, text), `{"server":"s","tool":"x"}`)
				if string(d.Effect()) != want || len(d.Why.Rules) != len(chosen) {
					t.Errorf("%s gives %s (%s), want %s", text, d.Effect(), held(d), want)
				}
				slices.Reverse(chosen)
			}
		}
	}
}

// TestMatch has, for each thing that a rule can be about, a call that fits and another that does not.
func TestMatch(t *testing.T) {
	for _, c := range []struct{ rule, fits, not string }{
		{`match: {server: github}`, `{"server":"github","tool":"x"}`, `{"server":"GitHub","tool":"x"}`},
		{`match: {server: [a, "b-*"]}`, `{"server":"b-1","tool":"x"}`, `{"server":"c","tool":"x"}`},
		{`match: {tool: "delete_*"}`, `{"server":"s","tool":"Delete_File"}`, `{"server":"s","tool":"undelete_file"}`},
		{`match: {tool: "get_?"}`, `{"server":"s","tool":"get_x"}`, `{"server":"s","tool":"get_xy"}`},
		{`match: {annotations: {destructiveHint: true}}`, `{"server":"s","tool":"x"}`, `{"server":"s","tool":"x","annotations":{"readOnlyHint":true}}`},
		{`match: {annotations: {readOnlyHint: false}}`, `{"server":"s","tool":"x"}`, `{"server":"s","tool":"x","annotations":{"readOnlyHint":true}}`},
		{`match: {annotations: {openWorldHint: true, annotated: true}}`, `{"server":"s","tool":"x","annotations":{"title":"X"}}`, `{"server":"s","tool":"x"}`},
		{`match: {user: ann}`, `{"server":"s","tool":"x","user":"ann"}`, `{"server":"s","tool":"x","user":"bob"}`},
		{`match: {role: admin}`, `{"server":"s","tool":"x","role":"admin"}`, `{"server":"s","tool":"x"}`},
		{`match: {tenant: "acme*"}`, `{"server":"s","tool":"x","tenant":"acme"}`, `{"server":"s","tool":"x"}`},
		{`match: {kind: [exec, execute_code]}`, `{"kind":"exec"}`, `{"server":"s","tool":"x"}`},
		{`match: {kind: skill_run, skill: pdf}`, `{"kind":"skill_run","skill":"pdf"}`, `{"kind":"skill_run","skill":"xls"}`},
		{`match: {time: {days: [sat, sun]}}`, `{"tool":"x","time":"2026-11-21T10:00:00Z"}`, `{"tool":"x","time":"2026-11-20T10:00:00Z"}`},
		{`match: {time: {from: "18:00", to: "08:00", zone: Europe/Berlin}}`, `{"tool":"x","time":"2026-11-20T17:30:00Z"}`, `{"tool":"x","time":"2026-11-20T16:30:00Z"}`},
		{`match: {time: {days: [fri], from: "22:00", to: "02:00"}}`, `{"tool":"x","time":"2026-11-21T01:59:00Z"}`, `{"tool":"x","time":"2026-11-20T01:59:00Z"}`},
		{`when: args.path.startsWith("/etc/")`, `{"tool":"x","args":{"path":"/etc/passwd"}}`, `{"tool":"x","args":{"path":"/home"}}`},
		{`unless: args.?dry_run.orValue(false)`, `{"tool":"x"}`, `{"tool":"x","args":{"dry_run":true}}`},
		{`when: now.getHours("UTC") < 6`, `{"tool":"x","time":"2026-11-20T05:00:00Z"}`, `{"tool":"x","time":"2026-11-20T06:00:00Z"}`},
		{`when: '"pay" in capabilities'`, `{"tool":"x","capabilities":["pay"]}`, `{"tool":"x"}`},
		{`when: args.amount > 100`, `{"tool":"x","args":{"amount":100.5}}`, `{"tool":"x","args":{"amount":1e2}}`},
		{`when: args.n == 3`, `{"tool":"x","args":{"n":3.0}}`, `{"tool":"x","args":{"n":"3"}}`},
		{`when: exec != ""`, `{"tool":"x","exec":"e1"}`, `{"tool":"x"}`},
	} {
		t.Run(c.rule, func(t *testing.T) {
			f := rules(t, "default: allow\nrules:\n- id: r\n  effect: deny\n  "+c.rule)
			if d := decide(t, f, c.fits); d.Effect() != Deny || len(d.Why.Rules[0].Held) == 0 && !strings.Contains(c.rule, "kind: [") {
				t.Errorf("%s: %+v", c.fits, d.Why)
			}
			if d := decide(t, f, c.not); d.Effect() != Allow {
				t.Errorf("%s: %+v", c.not, d.Why)
			}
		})
	}
}

// TestUnjudged: what a rule cannot judge is denied, also by a rule that would allow or only limit.
func TestUnjudged(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 500) + "1" + strings.Repeat("}", 500)
	long, _ := json.Marshal(map[string]string{"text": strings.Repeat("ab", 1<<20)})
	many, _ := json.Marshal(map[string]any{"list": make([]int, 20_000)})
	for name, c := range map[string]struct{ when, args, want string }{
		"a missing argument":       {`args.path == "x"`, `{}`, "no such key: path; for what may be missing"},
		"an argument of a type":    {`args.n > 5`, `{"n":"many"}`, "no such overload"},
		"no boolean":               {`args.flag`, `{"flag":"yes"}`, "is no true or false but a string"},
		"an integer beyond 2^53":   {`args.n == 9007199254740993`, `{"n":9007199254740993}`, "not every program reads alike"},
		"the same, in other words": {`args.n > 5`, `{"n":9.007199254740993e15}`, "not every program reads alike"},
		"beyond every number":      {`args.n > 5`, `{"n":1e999}`, "not every program reads alike"},
		"a name that is twice":     {`args.n == 1`, `{"n":1,"n":2}`, `"n" is there twice`},
		"twice, written otherwise": {`args.n == 1`, `{"n":1,"\u006e":2}`, `"n" is there twice`},
		"twice, within":            {`size(args.l) > 0`, `{"l":[{"a":1,"a":1}]}`, `"l.0.a" is there twice`},
		"half of a pair":           {`args.s != ""`, `{"s":"\ud83d"}`, "surrogate pair"},
		"no UTF-8":                 {`args.s != ""`, "{\"s\":\"\xff\"}", "UTF-8"},
		"a list":                   {`args.n == 1`, `[1]`, "no object"},
		"work without end":         {`args.list.all(a, args.list.all(b, a == b))`, string(many), "cannot be judged"},
		"deep":                     {`args.b == 1`, deep, "no such key"},
		"long":                     {`args.text.matches("(a|b)*c") || args.nothing`, string(long), ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, effect := range []string{"effect: allow", "effect: require_approval", "limit: {time: 1s}"} {
				f := rules(t, "default: allow\nrules:\n- id: r\n  "+effect+"\n  when: '"+c.when+"'")
				r := Sample{Server: "s", Tool: "x"}.Request()
				r.Arguments = json.RawMessage(c.args)
				d := (&Set{Global: f}).Decide(context.Background(), r)
				if d.Effect() != Deny || !strings.Contains(d.Why.Rules[0].Error, c.want) {
					t.Errorf("%s: %.300v, want %s", effect, fmt.Sprintf("%+v", d.Why), c.want)
				}
			}
		})
	}
	// A rule that does not look at arguments does not care what they are.
	f := rules(t, "default: allow\nrules:\n- {id: r, effect: deny, when: 'user == \"x\"'}")
	if d := decide(t, f, `{"tool":"x","args":{"n":9007199254740993}}`); d.Effect() != Allow {
		t.Errorf("%+v", d.Why)
	}
}

// TestNamesOfTools: a server chooses its tools' names; none of its tricks leads past a rule that restricts, and none
// into an allowing one.
func TestNamesOfTools(t *testing.T) {
	deny := rules(t, "default: allow\nrules:\n- {id: r, effect: deny, match: {tool: delete_file}}")
	allow := rules(t, "default: deny\nrules:\n- {id: r, effect: allow, match: {tool: delete_file}}")
	for _, name := range []string{"DELETE_FILE", "Delete_File", "dеlete_file", "delete_fi\u200ble", "delete\u00a0file", "ｄelete_file", "delete_file\u202e", "𝐝elete_file", "delete_fıle", "delete_file\x00"} {
		r := Sample{Server: "s", Tool: name}.Request()
		if d := (&Set{Global: deny}).Decide(context.Background(), r); d.Effect() != Deny {
			t.Errorf("%q passes the rule that denies", name)
		}
		if d := (&Set{Global: allow}).Decide(context.Background(), r); d.Effect() != Deny {
			t.Errorf("%q is allowed", name)
		}
	}
	for _, name := range []string{"ファイル", "read_file", "delete_files", "删除"} {
		if d := (&Set{Global: deny}).Decide(context.Background(), Sample{Server: "s", Tool: name}.Request()); d.Effect() != Allow {
			t.Errorf("%q is denied", name)
		}
	}
}

// TestTenants: whatever a tenant's own rules say, nothing is allowed that the server's do not allow, and its limits
// and redactions stay.
func TestTenants(t *testing.T) {
	effects := []string{"allow", "require_approval", "deny"}
	const global = "limit: {calls: 10, per: 1m, bytes: 100, time: 10s}\n  redact: {result: {fields: [ssn]}}"
	for _, g := range effects {
		for _, own := range effects {
			set := &Set{
				Global:  rules(t, "default: deny\nrules:\n- id: r\n  effect: "+g+"\n  "+global),
				Tenants: map[string]*Rules{"acme": rules(t, "default: allow\nrules:\n- id: r\n  effect: "+own+"\n  limit: {calls: 5, per: 1m, bytes: 1000, time: 1s}\n  redact: {result: {fields: [phone]}}")},
			}
			d := set.Decide(context.Background(), Sample{Server: "s", Tool: "x", Tenant: "acme"}.Request())
			if d.Effect().strength() < Effect(g).strength() || d.Effect().strength() < Effect(own).strength() {
				t.Errorf("%s and the tenant's %s give %s", g, own, d.Effect())
			}
			if len(d.Limits.Rates) != 2 || d.Limits.Bytes != 100 || d.Limits.Time != time.Second || len(d.Redact.Result.Fields) != 2 || held(d) != "r tenant:r" || d.Limits.Rates[0].Key == d.Limits.Rates[1].Key {
				t.Errorf("%+v", d)
			}
			if other := set.Decide(context.Background(), Sample{Server: "s", Tool: "x", Tenant: "other"}.Request()); string(other.Effect()) != g || held(other) != "r" {
				t.Errorf("another tenant: %+v", other.Why)
			}
		}
	}
	broken := &Set{Global: Default(), Broken: map[string]bool{"acme": true}}
	if d := broken.Decide(context.Background(), Sample{Tenant: "acme", Server: "s", Tool: "x"}.Request()); d.Effect() != Deny {
		t.Errorf("rules that cannot be read: %+v", d.Why)
	}
	if err := rules(t, "default: deny").CheckTenant(); err == nil {
		t.Error("a tenant's default is taken")
	}
}

// TestHides: a tool whose every call is denied is hidden; a tool with a call that may be allowed is shown.
func TestHides(t *testing.T) {
	x := sandbox.Tool{Server: "s", Name: "x"}
	for text, want := range map[string]bool{
		"default: allow": false,
		"default: deny":  true,
		"default: allow\nrules:\n- {id: r, effect: deny, match: {tool: x}}":                                  true,
		"default: allow\nrules:\n- {id: r, effect: deny, match: {tool: y}}":                                  false,
		"default: allow\nrules:\n- {id: r, effect: deny, when: 'args.n == 1'}":                               false,
		"default: allow\nrules:\n- {id: r, effect: deny, match: {time: {days: [mon]}}}":                      false,
		"default: allow\nrules:\n- {id: r, effect: deny, match: {user: u}}":                                  true,
		"default: allow\nrules:\n- {id: r, effect: deny, match: {role: admin}}":                              false,
		"default: deny\nrules:\n- {id: r, effect: allow, when: 'args.n == 1'}":                               false,
		"default: deny\nrules:\n- {id: r, effect: require_approval, match: {server: s}}":                     false,
		"default: deny\nrules:\n- {id: r, effect: allow, match: {server: other}}":                            true,
		"default: deny\nrules:\n- {id: a, effect: allow}\n- {id: d, effect: deny, match: {tool: x}}":         true,
		"default: deny\nrules:\n- {id: r, effect: allow, match: {kind: exec}}":                               true,
		"default: allow\nrules:\n- {id: r, effect: deny, match: {annotations: {readOnlyHint: false}}}":       true,
		"default: allow\nrules:\n- {id: r, effect: require_approval, match: {annotations: {}, server: '*'}}": false,
	} {
		if got := (&Set{Global: rules(t, text)}).Hides(caller, thread, x); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}

// TestProblems: each mistake is named by line and field, with what would be right.
func TestProblems(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "empty: want a mapping with version, default and rules",
		"- a":                                  "line 1: want a mapping",
		"version: 1":                           "line 1: default: is missing: what happens when no rule decides? want allow, require_approval or deny",
		"version: 2\ndefault: allow":           `line 1: version: "2" is none that this server knows; want 1`,
		"version: 1\ndefault: perhaps":         `line 2: default: "perhaps" is none; want allow, require_approval or deny`,
		"version: 1\ndefault: allow\nrule: []": "line 3: rule: is not known (did you mean rules?); there are capabilities, default, rules, tests, version",
		"version: 1\ndefault: allow\nrules:\n- id: a\n  efect: deny":                                            "line 5: rules[0].efect: is not known (did you mean effect?)",
		"version: 1\ndefault: allow\nrules:\n- effect: deny":                                                    "line 4: rules[0].id: is missing",
		"version: 1\ndefault: allow\nrules:\n- {id: a, effect: deny}\n- {id: a, effect: deny}":                  "line 5: rules[1].id: a is another rule's id",
		"version: 1\ndefault: allow\nrules:\n- {id: a}":                                                         "rules[0].effect: is missing",
		"version: 1\ndefault: allow\nrules:\n- id: a\n  effect: deny\n  when: arg.x == 1":                       "line 6: rules[0].when: column 1: undeclared reference to 'arg'; there are kind, server, tool, annotations, said, args",
		"version: 1\ndefault: allow\nrules:\n- id: a\n  effect: deny\n  when: user ==":                          "line 6: rules[0].when: column 8: Syntax error",
		"version: 1\ndefault: allow\nrules:\n- id: a\n  effect: deny\n  when: user":                             "line 6: rules[0].when: is a string; want true or false",
		"version: 1\ndefault: allow\nrules:\n- id: a\n  effect: deny\n  match: {kind: tool}":                    `"tool" is none; there are tool_call, mcp_request`,
		"version: 1\ndefault: allow\nrules:\n- id: a\n  effect: deny\n  match: {annotations: {readonly: true}}": "rules[0].match.annotations.readonly: is not known; there are annotated, destructiveHint",
		"version: 1\ndefault: allow\nrules:\n- id: a\n  effect: deny\n  match: {time: {zone: Berlin}}":          `"Berlin" is no time zone; want one as Europe/Berlin`,
		"version: 1\ndefault: allow\nrules:\n- id: a\n  limit: {calls: 3}":                                      "calls and per belong together",
		"version: 1\ndefault: allow\nrules:\n- id: a\n  redact: {result: {patterns: ['(']}}":                    "want a regular expression of Go (RE2)",
		"version: 1\ndefault: allow\nrules:\n- id: a\n  redact: {result: {patterns: ['(x{99}y){10}']}}":         "at most 2000 are allowed",
		"version: 1\ndefault: allow\nrules:\n- id: a\n  effect: deny\n  effect: allow":                          "rules[0].effect: is there twice",
		"version: 1\ndefault: allow\ntests:\n- {name: t, call: {tool: x}, expect: deny}":                        `line 4: tests[0]: "t" gives allow (no rule allows it); want deny`,
		"version: 1\ndefault: allow\ntests:\n- {name: t, call: {tol: x}, expect: deny}":                         `unknown field "tol"; there are kind, server, tool`,
		"version: 1\ndefault: allow\nrules: [}":                                                                 "line 3",
		"version: 1\ndefault: allow\n---\nversion: 1":                                                           "second document",
	} {
		_, err := Parse([]byte(text))
		var problems Problems
		if !errors.As(err, &problems) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngives %v\nwant %s", text, err, want)
		}
	}
	_, err := Parse([]byte("version: 3\ndefault: no\nrules:\n- {id: '', when: x}"))
	if p := (Problems{}); !errors.As(err, &p) || len(p) < 5 {
		t.Errorf("not all problems at once: %v", err)
	}
}

// FuzzParse: no file of rules is a panic.
func FuzzParse(f *testing.F) {
	f.Add(string(defaultText))
	f.Add("version: 1\ndefault: allow\nrules:\n- {id: a, effect: deny, when: 'args.n == 1'}")
	f.Fuzz(func(t *testing.T, text string) {
		rules, err := Parse([]byte(text))
		if err == nil {
			(&Set{Global: rules}).Decide(context.Background(), Sample{Tool: text}.Request())
		}
	})
}

func BenchmarkDecide(b *testing.B) {
	many := "default: allow\nrules:\n"
	for i := range 100 {
		many += fmt.Sprintf("- {id: r%d, effect: deny, match: {server: s%d, tool: 'delete_*'}, when: 'args.n == %d'}\n", i, i, i)
	}
	args := json.RawMessage(`{"path":"/mnt/user-data/workspace/report.txt","content":"some text that is not long","n":5,"options":{"overwrite":true}}`)
	for _, c := range []struct {
		name string
		set  *Set
	}{
		{"none", &Set{Global: rules(b, "default: allow")}},
		{"default", &Set{Global: Default()}},
		{"100 rules of other servers", &Set{Global: rules(b, many)}},
		{"one condition on arguments", &Set{Global: rules(b, "default: allow\nrules:\n- {id: r, effect: deny, when: 'args.path.startsWith(\"/etc/\")'}")}},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := Sample{Server: "s", Tool: "write_file"}.Request()
			r.Arguments = args
			b.ReportAllocs()
			for b.Loop() {
				if d := c.set.Decide(context.Background(), r); d.Effect() != Allow {
					b.Fatal(d.Why)
				}
			}
		})
	}
}
