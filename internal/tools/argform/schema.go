package argform

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// object is a JSON object in the order in which it was written.
type object struct {
	keys   []string
	values map[string]json.RawMessage
}

func parseObject(raw json.RawMessage) (object, error) {
	o := object{values: map[string]json.RawMessage{}}
	dec := json.NewDecoder(bytes.NewReader(raw))
	t, err := dec.Token()
	if err != nil || t != json.Delim('{') {
		return o, errors.Join(errors.New("not a JSON object"), err)
	}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return o, err
		}
		key, _ := t.(string) // a key is a string, or Token fails
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return o, err
		}
		if _, twice := o.values[key]; !twice {
			o.keys = append(o.keys, key)
		}
		o.values[key] = value
	}
	_, err = dec.Token()
	return o, err
}

func (o object) json() json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, key := range o.keys {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(key)
		if err != nil {
			continue // no string fails
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(o.values[key])
	}
	b.WriteByte('}')
	return b.Bytes()
}

// schema is what a form understands of a JSON Schema.
type schema struct {
	types       []string
	description string
	enum        []json.RawMessage
	constant    json.RawMessage
	fallback    json.RawMessage // default
	properties  object
	required    map[string]bool
	items       *schema
	ref         string
	alternative []*schema
	bounds      bounds
	defs        map[string]object // "$defs" and "definitions"
}

// bounds are limits of a scalar or a list.
type bounds struct {
	Minimum          *float64 `json:"minimum"`
	Maximum          *float64 `json:"maximum"`
	ExclusiveMinimum any      `json:"exclusiveMinimum"` // a boolean in draft 4
	ExclusiveMaximum any      `json:"exclusiveMaximum"`
	MinLength        *int     `json:"minLength"`
	MaxLength        *int     `json:"maxLength"`
	MinItems         *int     `json:"minItems"`
	MaxItems         *int     `json:"maxItems"`
	Pattern          string   `json:"pattern"`
}

// parse reads a schema; its properties are read when they are asked for. A part of a wrong
// type is passed over: the tool's server checks the whole in the end.
func parse(raw json.RawMessage) (*schema, error) { return parseTo(raw, maxDepth) }

// parseTo reads lists and alternatives of up to depth levels: each level costs its text once more.
func parseTo(raw json.RawMessage, depth int) (*schema, error) {
	s := &schema{required: map[string]bool{}, defs: map[string]object{}}
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || raw[0] != '{' || depth == 0 {
		if len(raw) == 0 || depth == 0 || string(raw) == "true" || string(raw) == "false" {
			return s, nil
		}
		return s, errors.New("not a JSON Schema")
	}
	o, err := parseObject(raw)
	if err != nil {
		return s, err
	}
	take := func(key string, into any) {
		if v, ok := o.values[key]; ok {
			_ = json.Unmarshal(v, into) // of a wrong type: as if it were not there
		}
	}
	take("description", &s.description)
	take("enum", &s.enum)
	take("$ref", &s.ref)
	_ = json.Unmarshal(raw, &s.bounds)
	s.constant, s.fallback = o.values["const"], o.values["default"]
	var one string
	take("type", &one)
	if take("type", &s.types); one != "" {
		s.types = []string{one}
	}
	var names []string
	take("required", &names)
	for _, n := range names {
		s.required[n] = true
	}
	if p, ok := o.values["properties"]; ok {
		if list, err := parseObject(p); err == nil {
			s.properties = list
		}
	}
	if v, ok := o.values["items"]; ok {
		s.items = orAny(v, depth-1)
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		var list []json.RawMessage
		take(key, &list)
		for _, v := range list[:min(len(list), 20)] {
			s.alternative = append(s.alternative, orAny(v, depth-1))
		}
	}
	for _, key := range []string{"$defs", "definitions"} {
		if v, ok := o.values[key]; ok {
			if list, err := parseObject(v); err == nil {
				s.defs[key] = list
			}
		}
	}
	return s, nil
}

// orAny returns a schema, or a schema that allows anything when it is unreadable.
func orAny(raw json.RawMessage, depth int) *schema {
	s, err := parseTo(raw, depth)
	if err != nil {
		return &schema{}
	}
	return s
}

func (s *schema) property(key string) *schema { return orAny(s.properties.values[key], maxDepth) }

// resolve follows a local $ref and takes the only alternative beside null. The words that stand
// beside the reference go before those of its target.
func (f *form) resolve(s *schema) *schema {
	if s == nil {
		return &schema{}
	}
	for range maxDepth {
		next := s.followed(f.root)
		if next == nil {
			return s
		}
		merged := *next
		if s.description != "" {
			merged.description = s.description
		}
		if s.fallback != nil {
			merged.fallback = s.fallback
		}
		s = &merged
	}
	return &schema{description: s.description}
}

func (s *schema) followed(root *schema) *schema {
	if s.ref != "" {
		for key, defs := range root.defs {
			name, ok := strings.CutPrefix(s.ref, "#/"+key+"/")
			if raw := defs.values[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)]; ok && raw != nil {
				return orAny(raw, maxDepth)
			}
		}
		return nil
	}
	if len(s.types) > 0 || len(s.alternative) == 0 {
		return nil
	}
	var only *schema
	for _, a := range s.alternative {
		if len(a.types) == 1 && a.types[0] == "null" {
			continue
		}
		if only != nil {
			return nil
		}
		only = a
	}
	if only == nil {
		return nil
	}
	nullable := *only
	if len(s.alternative) > 1 && len(only.types) > 0 {
		nullable.types = append(append([]string(nil), only.types...), "null")
	}
	return &nullable
}

// kind is the type that a form asks for, "" when there is no single one.
func (s *schema) kind() string {
	kind := ""
	for _, t := range s.types {
		if t == "null" {
			continue
		}
		if kind != "" {
			return ""
		}
		kind = t
	}
	if kind == "" && len(s.types) == 0 && len(s.properties.keys) > 0 {
		return "object"
	}
	return kind
}

// allowed returns the types that a value may have; nil for any.
func (s *schema) allowed() []string {
	if len(s.types) > 0 {
		return s.types
	}
	var all []string
	for _, a := range s.alternative {
		if len(a.types) == 0 {
			return nil
		}
		all = append(all, a.types...)
	}
	return all
}

// shownType is the type in words.
func (s *schema) shownType() string {
	kind := Line(strings.Join(s.allowed(), " or "), 60)
	switch {
	case len(s.enum) > 0:
		return "one of these"
	case kind == "":
		return "anything"
	case kind == "array" && s.items != nil && len(s.items.types) == 1:
		return "list of " + Line(s.items.types[0], 20)
	case kind == "array":
		return "list"
	}
	return kind
}

// limits are the bounds in words, with a blank before them.
func (s *schema) limits() string {
	b, parts := s.bounds, []string(nil)
	number := func(word string, n *float64) {
		if n != nil {
			parts = append(parts, fmt.Sprintf("%s %v", word, *n))
		}
	}
	count := func(word string, n *int) {
		if n != nil {
			parts = append(parts, fmt.Sprintf("%s %d", word, *n))
		}
	}
	number("at least", b.Minimum)
	number("at most", b.Maximum)
	if n, ok := b.ExclusiveMinimum.(float64); ok {
		number("more than", &n)
	}
	if n, ok := b.ExclusiveMaximum.(float64); ok {
		number("less than", &n)
	}
	count("characters at least", b.MinLength)
	count("characters at most", b.MaxLength)
	count("items at least", b.MinItems)
	count("items at most", b.MaxItems)
	if b.Pattern != "" {
		parts = append(parts, "matches "+Line(b.Pattern, 80))
	}
	if len(parts) == 0 {
		return ""
	}
	return " " + strings.Join(parts, ", ")
}
