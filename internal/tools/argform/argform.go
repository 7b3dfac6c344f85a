// Package argform asks a person for the arguments of a tool, field by field, as the tool's JSON Schema
// describes them. The schema comes from an MCP server and is not trusted. It is bounded in size and depth,
// and nothing of it reaches the terminal as a control sequence. A part that is not understood is asked for
// as JSON. What can be checked of a single field is checked at once, so that the person can mend it; the
// whole is checked where the tool is called.
package argform

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
)

// Limits of a form.
const (
	maxSchema = 1 << 20 // bytes
	maxFields = 500     // asked for in one form
	maxItems  = 1000    // of one list
	maxDepth  = 8       // of objects and lists within each other; below it JSON is asked for
	maxTries  = 20      // at one field
)

// ErrEnded says that the input ended before everything that is required was given.
var ErrEnded = errors.New("the input ended")

// Help is one line on how to answer, for the head of a form.
const Help = "Enter takes the default or leaves an optional field out; \"\" is an empty text; lists and objects may be given as JSON."

// Ask asks for the members of the object that schema describes. It writes its questions to out, reads the
// answers from lines, and returns the object as JSON. Members of preset, a JSON object or nil, are taken as
// they are and not asked for. An error is ErrEnded (wrapped, naming the field), that of ctx, or says what is
// wrong with the schema or preset.
func Ask(ctx context.Context, schema, preset json.RawMessage, lines *Lines, out io.Writer) (json.RawMessage, error) {
	if len(schema) > maxSchema {
		return nil, fmt.Errorf("the tool's schema has more than %d bytes: give the arguments as JSON", maxSchema)
	}
	root, err := parse(schema)
	if err != nil {
		return nil, fmt.Errorf("the tool's schema cannot be read: give the arguments as JSON: %w", err)
	}
	given := object{}
	if len(preset) > 0 {
		if given, err = parseObject(preset); err != nil {
			return nil, fmt.Errorf("the arguments that are given already: %w", err)
		}
	}
	f := &form{ctx: ctx, root: root, lines: lines, out: out}
	return f.members(f.resolve(root), "", given, 0)
}

// form is one run of questions.
type form struct {
	ctx    context.Context
	root   *schema
	lines  *Lines
	out    io.Writer
	fields int
}

// members asks for each property of an object that given does not have.
func (f *form) members(s *schema, path string, given object, depth int) (json.RawMessage, error) {
	made := object{keys: append([]string(nil), given.keys...), values: map[string]json.RawMessage{}}
	maps.Copy(made.values, given.values)
	for _, required := range []bool{true, false} {
		for _, key := range s.properties.keys {
			if _, ok := given.values[key]; ok || s.required[key] != required {
				continue
			}
			value, err := f.field(f.resolve(s.property(key)), join(path, key), required, depth)
			if err != nil {
				return nil, err
			}
			if value != nil {
				made.keys = append(made.keys, key)
				made.values[key] = value
			}
		}
	}
	return made.json(), nil
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// field asks for one value. It returns nil when an optional one is left out.
func (f *form) field(s *schema, path string, required bool, depth int) (json.RawMessage, error) {
	if s.constant != nil {
		return s.constant, nil // there is nothing to choose
	}
	if f.fields++; f.fields > maxFields {
		return nil, fmt.Errorf("the tool has more than %d fields: give the arguments as JSON", maxFields)
	}
	f.introduce(s, path, required)
	kind := s.kind()
	if depth < maxDepth {
		switch {
		case kind == "object" && len(s.properties.keys) > 0:
			return f.object(s, path, required, depth)
		case kind == "array":
			return f.list(s, path, required, depth)
		}
	}
	for range maxTries {
		line, err := f.read("  > ")
		if err != nil {
			if !required && errors.Is(err, ErrEnded) {
				return nil, nil
			}
			return nil, fmt.Errorf("%w before %s was given", err, Plain(path))
		}
		value, problem := s.answer(line, required)
		if problem == "" {
			return value, nil
		}
		f.say("  %s", problem)
	}
	return nil, fmt.Errorf("%s: no answer that fits after %d tries", Plain(path), maxTries)
}

// introduce writes what is asked for.
func (f *form) introduce(s *schema, path string, required bool) {
	word := "optional"
	if required {
		word = "required"
	}
	f.say("%s (%s, %s)%s", Plain(path), s.shownType(), word, s.limits())
	if d := Line(s.description, 400); d != "" {
		f.say("  %s", d)
	}
	for i, choice := range s.enum {
		f.say("  %d) %s", i+1, Line(shown(choice), 100))
	}
	if s.fallback != nil {
		f.say("  default: %s", Line(shown(s.fallback), 200))
	}
}

// object asks for the members of an object, or takes it as JSON.
func (f *form) object(s *schema, path string, required bool, depth int) (json.RawMessage, error) {
	question := "  give it now, field by field? [Y/n, or JSON] > "
	if !required {
		question = "  give it? [y/N, or JSON] > "
	}
	for range maxTries {
		line, err := f.read(question)
		if err != nil && (required || !errors.Is(err, ErrEnded)) {
			return nil, fmt.Errorf("%w before %s was given", err, Plain(path))
		}
		yes, no := isYes(line), isNo(line)
		switch {
		case err != nil, line == "" && !required, no && !required:
			return s.fallback, nil
		case yes || line == "" && required:
			return f.members(s, path, object{}, depth+1)
		}
		value, problem := s.answer(line, required)
		if problem == "" {
			return value, nil
		}
		f.say("  %s", problem)
	}
	return nil, fmt.Errorf("%s: no answer that fits after %d tries", Plain(path), maxTries)
}

// list asks for items until an empty line, or takes the whole as JSON.
func (f *form) list(s *schema, path string, required bool, depth int) (json.RawMessage, error) {
	item := f.resolve(s.items)
	nested := item.kind() == "object" && len(item.properties.keys) > 0
	question := "  one item a line, an empty line ends (or all as JSON)"
	if nested {
		question = "  y adds an item, an empty line ends (or all as JSON)"
	}
	f.say("%s", question)
	items := []json.RawMessage{}
	for tries := 0; tries < maxTries && len(items) < maxItems; {
		line, err := f.read(fmt.Sprintf("  %s[%d] > ", Plain(path), len(items)))
		ended := errors.Is(err, ErrEnded)
		if err != nil && !ended {
			return nil, err
		}
		switch {
		case ended || line == "":
			value, problem := s.collected(items, required)
			if problem == "" {
				return value, nil
			}
			if ended {
				return nil, fmt.Errorf("%w before %s was given", ErrEnded, Plain(path))
			}
			f.say("  %s", problem)
			tries++
			continue
		case len(items) == 0 && strings.HasPrefix(line, "["):
			value, problem := s.answer(line, required)
			if problem == "" {
				return value, nil
			}
			f.say("  %s", problem)
			tries++
			continue
		case nested && isYes(line):
			value, err := f.members(item, fmt.Sprintf("%s[%d]", path, len(items)), object{}, depth+1)
			if err != nil {
				return nil, err
			}
			items = append(items, value)
			continue
		}
		value, problem := item.answer(line, true)
		if problem != "" {
			f.say("  %s", problem)
			tries++
			continue
		}
		items = append(items, value)
	}
	return nil, fmt.Errorf("%s: too many items, or no answer that fits: give the arguments as JSON", Plain(path))
}

func isYes(line string) bool { return strings.EqualFold(line, "y") || strings.EqualFold(line, "yes") }
func isNo(line string) bool  { return strings.EqualFold(line, "n") || strings.EqualFold(line, "no") }

func (f *form) say(format string, args ...any) { fmt.Fprintf(f.out, format+"\n", args...) }

// read returns the next line without its end and the blanks around it.
func (f *form) read(question string) (string, error) {
	fmt.Fprint(f.out, question)
	line, err := f.lines.next(f.ctx)
	if err != nil {
		fmt.Fprintln(f.out)
	}
	return strings.TrimSpace(line), err
}

// shown is a JSON value as a person writes it: a text without its quotes.
func shown(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil && text != "" {
		return text
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return "?"
	}
	return b.String()
}
