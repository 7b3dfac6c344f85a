package schema

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/skerry-sandbox/skerry/internal/platform/boundedregexp"
	"github.com/skerry-sandbox/skerry/internal/platform/jsonedit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
)

const (
	maxFields = 10
	schemaURL = "mem:///input"
	maxShown  = 200 // bytes of a text that an error quotes
	// Input is the name of arguments in errors.
	Input = "input"
	// Result is the name of a result in errors.
	Result = "result"
)

// Validator checks arguments against a tool's input schema. It is compiled when it is first used: few
// of the many tools are ever called. It checks one call's arguments at a time: the steps are counted.
type Validator struct {
	raw  []byte
	root string // how errors name the whole value

	mu       sync.Mutex
	compiled bool
	sch      *jsonschema.Schema
	err      error // why the schema is of no use
	steps    budget
}

// New returns a validator of a schema. Errors call the whole value root.
func New(raw []byte, root string) *Validator { return &Validator{raw: raw, root: root} }

// noLoader refuses every reference that leads out of the schema: neither the network nor this host's
// files are read for a stranger.
type noLoader struct{}

// Load implements jsonschema.URLLoader.
func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("references out of the schema are not followed: %.100q", url)
}

// anyText stands for a pattern that Go cannot read (ECMAScript has more), or that is too large: the server will judge
// it.
type anyText string

// MatchString implements jsonschema.Regexp.
func (anyText) MatchString(string) bool { return true }
func (a anyText) String() string        { return string(a) }

// maxPattern bounds a pattern: a longer one takes time and memory before its size is known.
const maxPattern = 1000

// countedPattern is a pattern whose matches are steps of a validation.
type countedPattern struct {
	re    *boundedregexp.Regexp
	text  string
	steps *budget
}

// workPerStep is how much work of a pattern, in instructions and bytes of text, counts as a step.
const workPerStep = 512

// MatchString implements jsonschema.Regexp.
func (c countedPattern) MatchString(s string) bool {
	if c.steps.left -= c.re.Work(len(s)) / workPerStep; c.steps.left < 0 {
		c.steps.spent = true
		return true
	}
	return c.re.MatchString(s)
}

func (c countedPattern) String() string { return c.text }

func (b *budget) compilePattern(s string) (jsonschema.Regexp, error) {
	if len(s) > maxPattern {
		return anyText(s), nil
	}
	re, err := boundedregexp.Compile(s)
	if err != nil {
		return anyText(s), nil //nolint:nilerr // see anyText
	}
	return countedPattern{re, s, b}, nil
}

func (v *Validator) compile() {
	defer func() {
		if p := recover(); p != nil {
			v.err = fmt.Errorf("the schema cannot be compiled: %v", p)
		}
	}()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(v.raw))
	if err != nil {
		v.err = err
		return
	}
	if where, err := bounded(doc, maxSchemaDepth); err != nil {
		v.err = fmt.Errorf("%s %w", strings.Join(where, "."), err)
		return
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	c.UseRegexpEngine(v.steps.compilePattern)
	if err := c.AddResource(schemaURL, doc); err != nil {
		v.err = err
		return
	}
	if v.sch, v.err = c.Compile(schemaURL); v.err == nil {
		v.err = v.steps.install(v.sch)
	}
}

// validate checks a value. unusable says that the schema cannot judge it.
func (v *Validator) validate(value any) (wrong *jsonschema.ValidationError, unusable error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.compiled {
		v.compile()
		v.compiled = true
	}
	if v.err != nil {
		return nil, v.err
	}
	v.steps = budget{left: maxSteps}
	defer func() {
		if p := recover(); p != nil {
			wrong, unusable = nil, fmt.Errorf("the schema cannot be applied: %v", p)
		}
	}()
	err := v.sch.Validate(value)
	switch {
	case v.steps.spent:
		return nil, errSpent
	case errors.As(err, &wrong):
		return wrong, nil
	}
	return nil, err
}

// Check validates the arguments of a call, which must be one JSON object; nothing stands for {}. The
// error is Invalid and has a field for each thing that is wrong. A schema that cannot be used (problem)
// leaves the judgement to the server.
func (v *Validator) Check(tool string, input []byte) (args []byte, problem, err error) {
	if len(bytes.TrimSpace(input)) == 0 || string(bytes.TrimSpace(input)) == "null" {
		input = []byte("{}")
	}
	if len(input) > maxInputBytes {
		return nil, nil, invalidInput(tool, sandbox.Field{Name: Input, Detail: fmt.Sprintf("has more than %d bytes", maxInputBytes)})
	}
	if jsonedit.Values(input) > maxInputValues {
		return nil, nil, invalidInput(tool, sandbox.Field{Name: Input, Detail: fmt.Sprintf("has more than %d values", maxInputValues)})
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(input))
	if err != nil {
		return nil, nil, invalidInput(tool, sandbox.Field{Name: Input, Detail: "is not JSON"})
	}
	if _, ok := value.(map[string]any); !ok {
		return nil, nil, invalidInput(tool, sandbox.Field{Name: Input, Detail: "is not an object"})
	}
	if where, err := bounded(value, maxInputDepth); err != nil {
		return nil, nil, invalidInput(tool, sandbox.Field{Name: fieldPath(v.root, where), Detail: err.Error()})
	}
	wrong, problem := v.validate(value)
	if wrong != nil {
		if lean := v.withoutNulls(input, value); lean != nil {
			return lean, nil, nil
		}
		f := fieldList{root: v.root}
		f.add(wrong)
		return nil, nil, invalidInput(tool, f.fields...)
	}
	return input, problem, nil
}

// withoutNulls returns arguments that are not valid without the parameters that are null, if that makes
// them valid, else nil: many programs write null for a parameter that they leave out.
func (v *Validator) withoutNulls(input []byte, value any) []byte {
	object, _ := value.(map[string]any)
	lean := map[string]any{}
	for name, x := range object {
		if x != nil {
			lean[name] = x
		}
	}
	if len(lean) == len(object) {
		return nil
	}
	if wrong, problem := v.validate(lean); wrong != nil || problem != nil {
		return nil
	}
	for name, x := range object {
		if x != nil {
			continue
		}
		out, _, err := jsonedit.Remove(input, nil, name)
		if err != nil { // a name that is there twice
			return nil
		}
		input = out
	}
	return input
}

// Fields returns what is wrong with a JSON text, nothing when it is right. problem says that the schema
// or the text cannot be judged.
func (v *Validator) Fields(text []byte) (wrong []sandbox.Field, problem error) {
	if jsonedit.Values(text) > maxInputValues {
		return nil, fmt.Errorf("%s has more than %d values", v.root, maxInputValues)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return []sandbox.Field{{Name: v.root, Detail: "is not JSON"}}, nil
	}
	if where, err := bounded(value, maxInputDepth); err != nil {
		return nil, fmt.Errorf("%s %w", fieldPath(v.root, where), err)
	}
	bad, problem := v.validate(value)
	if bad == nil {
		return nil, problem
	}
	f := fieldList{root: v.root}
	f.add(bad)
	return f.fields, nil
}

func invalidInput(tool string, fields ...sandbox.Field) error {
	var parts []string
	for _, f := range fields {
		parts = append(parts, f.Name+" "+f.Detail)
	}
	return &sandbox.Error{Kind: sandbox.Invalid, Detail: tool + ": " + strings.Join(parts, "; "), Fields: fields}
}

// fieldList turns the tree of a validation error into one line for each field.
type fieldList struct {
	root   string
	fields []sandbox.Field
}

var english = message.NewPrinter(language.English)

func (f *fieldList) put(where []string, detail string) {
	if len(f.fields) < maxFields {
		f.fields = append(f.fields, sandbox.Field{Name: fieldPath(f.root, where), Detail: excerpt.Of(detail, maxShown)})
	}
}

// fieldPath writes a place in a value as a JSON path: input.edits[0].oldText.
func fieldPath(root string, where []string) string {
	var b strings.Builder
	b.WriteString(root)
	for _, w := range where {
		if _, err := strconv.Atoi(w); err == nil {
			b.WriteString("[" + w + "]")
		} else {
			b.WriteString("." + excerpt.Of(w, maxShown))
		}
	}
	return b.String()
}

func (f *fieldList) add(e *jsonschema.ValidationError) {
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing {
			f.put(append(e.InstanceLocation[:len(e.InstanceLocation):len(e.InstanceLocation)], name), "is missing")
		}
		return
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			f.put(append(e.InstanceLocation[:len(e.InstanceLocation):len(e.InstanceLocation)], name), "is not a parameter")
		}
		return
	case *kind.AnyOf, *kind.OneOf:
		if f.alternatives(e) {
			return
		}
	}
	if len(e.Causes) == 0 {
		f.put(e.InstanceLocation, e.ErrorKind.LocalizedString(english))
		return
	}
	for _, c := range e.Causes {
		f.add(c)
	}
}

// alternatives says in one line what none of several schemas allows, unless all but one fail already by
// the type of the whole value: then the error of the intended type says more. It reports whether it did.
func (f *fieldList) alternatives(e *jsonschema.ValidationError) bool {
	if len(e.Causes) == 0 {
		f.put(e.InstanceLocation, "matches more than one of the allowed forms")
		return true
	}
	var want []string
	var deep *jsonschema.ValidationError
	for _, c := range e.Causes {
		if t, ok := c.ErrorKind.(*kind.Type); ok && len(c.InstanceLocation) == len(e.InstanceLocation) {
			want = append(want, t.Want...)
			continue
		}
		if deep != nil {
			f.put(e.InstanceLocation, "matches none of the allowed forms")
			return true
		}
		deep = c
	}
	if deep != nil {
		f.add(deep)
		return true
	}
	f.put(e.InstanceLocation, "want "+strings.Join(want, " or "))
	return true
}

// Problem compiles the schema, and says why it is of no use; nil: it can judge values.
func (v *Validator) Problem() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.compiled {
		v.compile()
		v.compiled = true
	}
	return v.err
}
