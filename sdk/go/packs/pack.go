package packs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	packsv1 "github.com/skerry-sandbox/skerry/sdk/packs/v1"
)

// Pack is tools that belong together, under one name. Its methods may be called at the same time.
type Pack struct {
	// ID is the name of the pack on the server: 1 to 63 of the characters a-z 0-9 -, beginning with a letter.
	ID string
	// Version is for people.
	Version string
	// Description says what the tools are for.
	Description string
	// MaxParallel is how many calls run at once; 0: 16.
	MaxParallel int

	mu      sync.Mutex
	tools   []*tool
	current *connection // nil while there is none
}

// New returns a pack without tools.
func New(id, version string) *Pack { return &Pack{ID: id, Version: version} }

// tool is one tool of a pack.
type tool struct {
	definition *packsv1.ToolDefinition
	input      *jsonschema.Resolved
	run        func(ctx context.Context, input []byte) (*Result, error)
}

// Result is the answer of a tool, for a tool that has more to say than one value.
type Result struct {
	// Content are blocks of MCP, such as {"type": "text", "text": "…"}.
	Content []map[string]any `json:"content"`
	// Structured is the value for programs; nil: there is none.
	Structured any  `json:"structuredContent,omitempty"`
	IsError    bool `json:"isError,omitempty"`
}

// Text returns the text of all blocks.
func (r *Result) Text() string {
	var parts []string
	for _, b := range r.Content {
		if text, ok := b["text"].(string); ok {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, "\n")
}

// Option is a property of a tool.
type Option func(*packsv1.ToolDefinition)

// Requires hides a tool from callers that do not have all these capabilities.
func Requires(capabilities ...string) Option {
	return func(d *packsv1.ToolDefinition) {
		d.RequiredCapabilities = append(d.RequiredCapabilities, capabilities...)
	}
}

// Timeout is how long a call may take, in whole seconds; 30 s without it.
func Timeout(t time.Duration) Option {
	return func(d *packsv1.ToolDefinition) { d.TimeoutSeconds = int32(max(t/time.Second, 1)) } //nolint:gosec // seconds
}

// Title is the name of a tool for people.
func Title(text string) Option {
	return func(d *packsv1.ToolDefinition) { d.Title = text }
}

// Disclosure is "always", "deferred" or "hidden": when the server puts the definition of a tool before a model.
func Disclosure(when string) Option {
	return func(d *packsv1.ToolDefinition) { d.Disclosure = when }
}

// Annotations are hints of MCP, such as {"readOnlyHint": true}.
func Annotations(hints map[string]any) Option {
	return func(d *packsv1.ToolDefinition) {
		if text, err := json.Marshal(hints); err == nil {
			d.AnnotationsJson = string(text)
		}
	}
}

// Tool adds a tool to a pack. In is a struct: its fields are the arguments, named as in JSON, and a tag such as
// jsonschema:"the name of the lead" describes one. Out is the result: a struct is structured content, a string is text,
// and a *Result is sent as it is. An error of f is the error of the tool: the agent reads its text.
func Tool[In, Out any](p *Pack, name, description string, f func(ctx context.Context, in In) (Out, error), options ...Option) error {
	schema, err := jsonschema.For[In](nil)
	if err != nil {
		return fmt.Errorf("tool %s: the schema of its arguments: %w", name, err)
	}
	t := &tool{definition: &packsv1.ToolDefinition{Name: name, Description: description}}
	if t.definition.InputSchemaJson, t.input, err = resolved(schema); err != nil {
		return fmt.Errorf("tool %s: the schema of its arguments: %w", name, err)
	}
	if structured(reflect.TypeFor[Out]()) {
		out, err := jsonschema.For[Out](nil)
		if err != nil {
			return fmt.Errorf("tool %s: the schema of its result: %w", name, err)
		}
		if t.definition.OutputSchemaJson, _, err = resolved(out); err != nil {
			return fmt.Errorf("tool %s: the schema of its result: %w", name, err)
		}
	}
	for _, o := range options {
		o(t.definition)
	}
	if why := wrongOutput(t.definition); why != "" {
		return fmt.Errorf("tool %s: the schema of its result: %s", name, why)
	}
	t.run = func(ctx context.Context, input []byte) (*Result, error) {
		var in In
		if err := json.Unmarshal(input, &in); err != nil {
			return nil, fmt.Errorf("the arguments cannot be read: %w", err)
		}
		out, err := f(ctx, in)
		if err != nil {
			return nil, err
		}
		return resultOf(out)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.ContainsFunc(p.tools, func(o *tool) bool { return o.definition.GetName() == name }) {
		return fmt.Errorf("tool %s: the pack has one of that name", name)
	}
	p.tools = append(p.tools, t)
	return nil
}

// Remove takes a tool out of the pack. A server is told by Reload.
func (p *Pack) Remove(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tools = slices.DeleteFunc(p.tools, func(t *tool) bool { return t.definition.GetName() == name })
}

func resolved(s *jsonschema.Schema) (text string, r *jsonschema.Resolved, err error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return "", nil, err
	}
	r, err = s.Resolve(nil)
	return string(raw), r, err
}

// structured reports whether results of a type are objects with a schema.
func structured(t reflect.Type) bool {
	if t == reflect.TypeFor[*Result]() || t == reflect.TypeFor[Result]() {
		return false
	}
	if t.Kind() == reflect.Pointer {
		return false // it may be nil, which is no object
	}
	return t.Kind() == reflect.Struct
}

func resultOf(out any) (*Result, error) {
	switch out := out.(type) {
	case *Result:
		if out == nil {
			out = &Result{}
		}
		return out, nil
	case string:
		return textResult(out), nil
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("the result cannot be written: %w", err)
	}
	r := textResult(string(raw))
	if raw[0] == '{' {
		r.Structured = json.RawMessage(raw)
	}
	return r, nil
}

func textResult(text string) *Result {
	return &Result{Content: []map[string]any{{"type": "text", "text": text}}}
}

// errNoTool says that a pack does not have a tool.
var errNoTool = errors.New("the pack has no such tool")

// find returns a tool.
func (p *Pack) find(name string) (*tool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.tools {
		if t.definition.GetName() == name {
			return t, nil
		}
	}
	return nil, errNoTool
}

// Manifest is what the pack tells a server.
func (p *Pack) Manifest() *packsv1.PackManifest {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := &packsv1.PackManifest{PackId: p.ID, Version: p.Version, Description: p.Description, MaxParallelCalls: int32(p.MaxParallel)} //nolint:gosec // the server checks it
	for _, t := range p.tools {
		m.Tools = append(m.Tools, t.definition)
	}
	return m
}

// Call runs a tool without a server, as a test does: input is encoded as JSON and checked against the schema.
func (p *Pack) Call(ctx context.Context, name string, input any) (*Result, error) {
	t, err := p.find(name)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(input)
	if err != nil {
		return nil, err
	}
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return nil, err
	}
	if err := t.input.Validate(value); err != nil {
		return nil, fmt.Errorf("the arguments do not fit the schema: %w", err)
	}
	return t.answer(ctx, raw, slog.Default()), nil
}

// answer runs a tool. An error and a panic are the tool's own failure.
func (t *tool) answer(ctx context.Context, input []byte, log *slog.Logger) (r *Result) {
	defer func() {
		if v := recover(); v != nil {
			log.Error("a tool panicked", "tool", t.definition.GetName(), "error", v)
			r = textResult("the tool failed in a way that its author did not expect")
			r.IsError = true
		}
	}()
	r, err := t.run(ctx, input)
	if err != nil {
		r = textResult(err.Error())
		r.IsError = true
	}
	return r
}
