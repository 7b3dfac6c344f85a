// Package jsonedit changes one member of a JSON text and leaves every other byte as it is: order, blanks,
// numbers, and keys that the caller does not know.
package jsonedit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tailscale/hujson"
)

// Member is one member of a JSON object: where it and its value lie in the text.
type Member struct {
	Key   string
	value *hujson.Value
}

// Value returns the bytes of the value.
func (m Member) Value(text []byte) []byte { return text[m.value.StartOffset:m.value.EndOffset] }

// Object is where the members of a JSON object lie in a text.
type Object struct {
	All    []Member
	object *hujson.Object
}

// Find returns the member of a key.
func (o Object) Find(key string) (Member, bool) {
	for _, m := range o.All {
		if m.Key == key {
			return m, true
		}
	}
	return Member{}, false
}

var errNotUTF8 = errors.New("it is not UTF-8, which JSON has to be")

// firstInvalid is where a text ceases to be UTF-8.
func firstInvalid(text []byte) int {
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return len(text)
}

// Members reads a text that is one JSON object. what names it in an error; "" is the whole file.
func Members(text []byte, what string) (Object, error) {
	o, _, err := parse(text, what)
	return o, err
}

// parse returns the object of a text, and all of the text.
func parse(text []byte, what string) (Object, *hujson.Value, error) {
	// Two keys that are no UTF-8 may be read as the same one.
	if !utf8.Valid(text) {
		return Object{}, nil, fmt.Errorf("%s: %w", Place(text, firstInvalid(text)), errNotUTF8)
	}
	// hujson allows comments, and bounds no depth.
	if err := json.Unmarshal(text, new(json.RawMessage)); err != nil {
		return Object{}, nil, jsonError(text, err)
	}
	all, err := hujson.Parse(text)
	if err != nil {
		return Object{}, nil, err
	}
	object, ok := all.Value.(*hujson.Object)
	if !ok {
		return Object{}, nil, fmt.Errorf("%s: want an object", strings.TrimPrefix(what+" "+Place(text, 0), " "))
	}
	o, err := members(text, object)
	return o, &all, err
}

// members lists those of an object. A key that is there twice is an error.
func members(text []byte, object *hujson.Object) (Object, error) {
	o := Object{object: object}
	known := map[string]bool{}
	for i := range object.Members {
		m := &object.Members[i]
		key := m.Name.Value.(hujson.Literal).String() // the parser allows nothing else here
		if known[key] {
			return o, fmt.Errorf("%s: %q is there twice", Place(text, m.Name.StartOffset), key)
		}
		known[key] = true
		o.All = append(o.All, Member{Key: key, value: &m.Value})
	}
	return o, nil
}

// Members reads the value of m as an object.
func (m Member) Members(text []byte, what string) (Object, error) {
	if object, ok := m.value.Value.(*hujson.Object); ok {
		if o, err := members(text, object); err == nil {
			return o, nil
		}
	}
	return Object{}, fmt.Errorf("%s: %s is not an object, or has a name twice", Place(text, m.value.StartOffset), what)
}

// Place names a position as people count.
func Place(text []byte, offset int) string {
	offset = max(0, min(offset, len(text)))
	line := 1 + bytes.Count(text[:offset], []byte("\n"))
	column := offset - bytes.LastIndexByte(text[:offset], '\n')
	return fmt.Sprintf("line %d, column %d", line, column)
}

func jsonError(text []byte, err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) && int(syntax.Offset) <= len(text) && syntax.Error() != "unexpected end of JSON input" {
		return fmt.Errorf("%s: %w", Place(text, int(syntax.Offset)-1), err)
	}
	return fmt.Errorf("%s: the text ends too early", Place(text, len(text)))
}

// Set returns text with the member key of the object at path set to value: replaced in its place, or
// added as the last one. Objects on the way are made. All else keeps its bytes.
func Set(text []byte, path []string, key string, value []byte) ([]byte, error) {
	if !utf8.Valid(value) || !utf8.ValidString(key) || slices.ContainsFunc(path, func(step string) bool { return !utf8.ValidString(step) }) {
		return nil, fmt.Errorf("the value, or its place: %w", errNotUTF8)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}\n")
	}
	o, all, err := parse(text, "")
	if err != nil {
		return nil, err
	}
	indent := "  "
	for i, step := range path {
		m, ok := o.Find(step)
		if !ok || isNull(m) {
			m = o.set(step, &hujson.Object{}, indent)
		}
		if o, err = m.Members(text, strings.Join(path[:i+1], ".")); err != nil {
			return nil, err
		}
		indent += "  "
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, value, indent, "  "); err != nil {
		return nil, err
	}
	v, err := hujson.Parse(pretty.Bytes())
	if err != nil {
		return nil, err
	}
	o.set(key, v.Value, indent)
	return all.Pack(), nil
}

func isNull(m Member) bool {
	l, ok := m.value.Value.(hujson.Literal)
	return ok && l.Kind() == 'n'
}

// set replaces the value of a key, or adds a member at the end.
func (o Object) set(key string, value hujson.ValueTrimmed, indent string) Member {
	if m, ok := o.Find(key); ok {
		m.value.Value = value
		return m
	}
	if len(o.All) == 0 {
		o.object.AfterExtra = hujson.Extra("\n" + indent[2:])
	}
	o.object.Members = append(o.object.Members, hujson.ObjectMember{
		Name:  hujson.Value{BeforeExtra: hujson.Extra("\n" + indent), Value: hujson.String(key)},
		Value: hujson.Value{BeforeExtra: hujson.Extra(" "), Value: value},
	})
	return Member{Key: key, value: &o.object.Members[len(o.All)].Value}
}

// Remove returns text without the member key of the object at path, and whether it was there.
func Remove(text []byte, path []string, key string) (out []byte, found bool, err error) {
	o, all, err := parse(text, "")
	if err != nil {
		return nil, false, err
	}
	for i, step := range path {
		m, ok := o.Find(step)
		if !ok || isNull(m) {
			return text, false, nil
		}
		if o, err = m.Members(text, strings.Join(path[:i+1], ".")); err != nil {
			return nil, false, err
		}
	}
	i := slices.IndexFunc(o.All, func(m Member) bool { return m.Key == key })
	if i < 0 {
		return text, false, nil
	}
	switch list := o.object.Members; {
	case len(list) == 1:
		o.object.AfterExtra = nil
	case i == 0: // what follows takes its place
		list[1].Name.BeforeExtra = list[0].Name.BeforeExtra
	}
	o.object.Members = slices.Delete(o.object.Members, i, i+1)
	return all.Pack(), true, nil
}
