package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"
)

// Bounds of one condition in what CEL counts as cost: an element of a list, or some ten characters of a text, is about
// one. A loop is bounded by time, too: CEL's own counting becomes slow in long ones.
const (
	maxCost       = 500_000
	maxLoopCost   = 100_000
	maxLoop       = 250 * time.Millisecond
	interruptEach = 100 // turns of a loop between looks at the clock
)

// exact is the largest integer up to which every reader of JSON holds the same number.
const exact = 1 << 53

// facts are what conditions know of a request, made when the first one asks.
type facts struct {
	r         *Request
	vars      map[string]any
	argsRead  bool
	argsError error // why the arguments cannot be judged
}

// condition is an expression of CEL that yields a boolean.
type condition struct {
	text     string
	program  cel.Program
	usesArgs bool
	looks    looks // at what of the arguments
	loops    bool  // over a list or a map, which takes the time that these take
}

// names are what expressions may use, with their types; docs/policy.md describes them.
var names = []struct {
	name string
	kind *cel.Type
}{
	{"kind", cel.StringType}, {"server", cel.StringType}, {"tool", cel.StringType}, {"annotations", cel.MapType(cel.StringType, cel.DynType)},
	{"said", cel.ListType(cel.StringType)}, {"args", cel.DynType}, {"skill", cel.StringType}, {"allowed_tools", cel.ListType(cel.StringType)}, {"untrusted", cel.BoolType},
	{"tenant", cel.StringType}, {"user", cel.StringType}, {"role", cel.StringType}, {"key", cel.StringType},
	{"findings", cel.ListType(cel.StringType)},
	{"capabilities", cel.ListType(cel.StringType)}, {"thread", cel.StringType}, {"exec", cel.StringType}, {"now", cel.TimestampType},
}

var environment = sync.OnceValues(func() (*cel.Env, error) {
	o := []cel.EnvOption{
		cel.OptionalTypes(), cel.CrossTypeNumericComparisons(true), ext.Strings(), ext.Sets(),
		cel.ParserRecursionLimit(50), cel.ParserExpressionSizeLimit(maxCondition),
	}
	for _, n := range names {
		o = append(o, cel.Variable(n.name, n.kind))
	}
	return cel.NewEnv(o...)
})

// compile reads an expression. The error says at which column it is wrong, and what there is.
func compile(text string) (*condition, error) {
	if len(text) > maxCondition {
		return nil, fmt.Errorf("has %d bytes, at most %d", len(text), maxCondition)
	}
	env, err := environment()
	if err != nil {
		return nil, err
	}
	checked, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, errors.New(explained(issues))
	}
	if out := checked.OutputType(); !out.IsExactType(cel.BoolType) && !out.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("is a %s; want true or false, as in args.count > 10", out)
	}
	c := &condition{text: text}
	ast.PreOrderVisit(checked.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		c.usesArgs = c.usesArgs || e.Kind() == ast.IdentKind && e.AsIdent() == "args"
		c.loops = c.loops || e.Kind() == ast.ComprehensionKind
	}))
	if c.usesArgs {
		c.looks = looksOf(checked.NativeRep().Expr(), c.loops)
	}
	cost := cel.CostLimit(maxCost)
	if c.loops {
		cost = cel.CostLimit(maxLoopCost)
	}
	if c.program, err = env.Program(checked, cel.EvalOptions(cel.OptOptimize), cost, cel.InterruptCheckFrequency(interruptEach)); err != nil {
		return nil, errors.New(strings.TrimSpace(err.Error()))
	}
	return c, nil
}

// explained puts what CEL says into one line.
func explained(issues *cel.Issues) string {
	var all []string
	for _, e := range issues.Errors() {
		text := fmt.Sprintf("column %d: %s", e.Location.Column()+1, strings.TrimSuffix(e.Message, " (in container '')"))
		if strings.Contains(text, "undeclared reference") {
			var known []string
			for _, n := range names {
				known = append(known, n.name)
			}
			text += "; there are " + strings.Join(known, ", ") + ", and the functions of CEL"
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

// eval asks a condition. An error denies.
func (c *condition) eval(ctx context.Context, f *facts) (bool, error) {
	if f.vars == nil {
		f.make()
	}
	if c.usesArgs {
		if err := f.read(); err != nil {
			return false, fmt.Errorf("%s cannot be judged: %w", c.text, err)
		}
		if err := c.looks.check(f.vars["args"]); err != nil {
			return false, fmt.Errorf("%s cannot be judged: %w", c.text, err)
		}
	}
	var out ref.Val
	var err error
	if c.loops {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxLoop)
		defer cancel()
		out, _, err = c.program.ContextEval(limited, f.vars)
	} else {
		out, _, err = c.program.Eval(f.vars)
	}
	if err != nil {
		return false, fmt.Errorf("%s cannot be judged: %s", c.text, advice(err))
	}
	yes, ok := out.(types.Bool)
	if !ok {
		return false, fmt.Errorf("%s is no true or false but a %s", c.text, out.Type().TypeName())
	}
	return bool(yes), nil
}

// advice says what to do about the usual failures.
func advice(err error) string {
	text := err.Error()
	if strings.Contains(text, "no such key") {
		text += `; for what may be missing write has(args.x) && … or args.?x.orValue("")`
	}
	return text
}

// read adds the arguments to the facts.
func (f *facts) read() error {
	if f.argsRead {
		return f.argsError
	}
	f.argsRead = true
	f.vars["args"], f.argsError = f.r.argsForCEL()
	return f.argsError
}

func (r *Request) argsForCEL() (any, error) {
	if len(r.Arguments) == 0 {
		return map[string]any{}, nil
	}
	v, err := parseArguments(r.Arguments)
	if err != nil {
		return nil, fmt.Errorf("the arguments: %w", err)
	}
	if _, ok := v.(map[string]any); !ok {
		return nil, errors.New("the arguments are no object")
	}
	if v, err = celValue(v, nil); err != nil {
		return nil, fmt.Errorf("the arguments: %w", err)
	}
	return v, nil
}

func (f *facts) make() {
	r := f.r
	hints := map[string]any{
		"readOnlyHint": r.Annotations.ReadOnly, "destructiveHint": r.Annotations.Destructive,
		"idempotentHint": r.Annotations.Idempotent, "openWorldHint": r.Annotations.OpenWorld, "annotated": r.Annotations.Said,
	}
	said := []string{}
	for i, explicit := range r.Annotations.Explicit {
		if explicit {
			said = append(said, hintNames[i])
		}
	}
	capabilities := capabilitiesOf(r)
	f.vars = map[string]any{
		"kind": string(r.Kind), "server": r.Server, "tool": r.Tool, "annotations": hints, "said": said, "args": nil, "skill": r.Skill, "untrusted": r.Untrusted,
		"tenant": r.Thread.Tenant, "user": r.Thread.User, "role": string(r.Caller.Role), "key": r.Caller.KeyID, "capabilities": capabilities,
		"thread": r.Thread.ID, "exec": r.Exec, "now": r.Time,
		"findings": findingsOf(r), "allowed_tools": append([]string{}, r.AllowedTools...),
	}
}

// findingsOf are the rules by which the tool's description looks poisoned.
func findingsOf(r *Request) []string {
	rules := []string{}
	for _, f := range r.Findings {
		if !slices.Contains(rules, f.Rule) {
			rules = append(rules, f.Rule)
		}
	}
	return rules
}

// capabilitiesOf returns the capabilities that the caller has in the thread.
func capabilitiesOf(r *Request) []string {
	if r.Capabilities == nil {
		return []string{}
	}
	return r.Capabilities
}

// celValue returns a JSON value with numbers as CEL has them, in place. A number that readers of JSON hold differently is
// an error: the rule would judge another one than the server gets.
func celValue(v any, path []string) (any, error) {
	var err error
	switch v := v.(type) {
	case map[string]any:
		for name, x := range v {
			if v[name], err = celValue(x, append(path, name)); err != nil {
				return nil, err
			}
		}
	case []any:
		for i, x := range v {
			if v[i], err = celValue(x, append(path, "["+strconv.Itoa(i)+"]")); err != nil {
				return nil, err
			}
		}
	case json.Number:
		f, err := v.Float64()
		if err != nil || math.Abs(f) >= exact && f == math.Trunc(f) {
			return nil, fmt.Errorf("%s is a number that not every program reads alike (beyond 2^53)", shownPath(path))
		}
		if f == math.Trunc(f) {
			return int64(f), nil
		}
		return f, nil
	}
	return v, nil
}
