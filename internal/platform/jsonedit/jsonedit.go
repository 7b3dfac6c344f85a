// Package jsonedit changes one member of a JSON text and leaves every other byte as it is: order, blanks,
// numbers, and keys that the caller does not know.
package jsonedit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Member is one member of a JSON object: where it and its value lie in the text.
type Member struct {
	Key        string
	start      int // of the key
	valueStart int
	end        int
}

// Value returns the bytes of the value.
func (m Member) Value(text []byte) []byte { return text[m.valueStart:m.end] }

// Object is where the members of a JSON object lie in a text.
type Object struct {
	All        []Member
	open, shut int // of the braces
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

// Members reads a text that is one JSON object. what names it in an error; "" is the whole file.
func Members(text []byte, what string) (Object, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	token, err := d.Token()
	if err != nil {
		return Object{}, jsonError(text, err)
	}
	if token != json.Delim('{') {
		return Object{}, fmt.Errorf("%s: want an object", strings.TrimPrefix(what+" "+Place(text, 0), " "))
	}
	o := Object{open: int(d.InputOffset()) - 1}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return o, jsonError(text, err)
		}
		m := Member{Key: token.(string)} // the decoder allows nothing else here
		m.start = keyStart(text, o)
		if _, twice := o.Find(m.Key); twice {
			return o, fmt.Errorf("%s: %q is there twice", Place(text, m.start), m.Key)
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return o, jsonError(text, err)
		}
		m.end = int(d.InputOffset())
		m.valueStart = m.end - len(raw)
		o.All = append(o.All, m)
	}
	if _, err := d.Token(); err != nil {
		return o, jsonError(text, err)
	}
	o.shut = int(d.InputOffset()) - 1
	if rest := bytes.TrimSpace(text[o.shut+1:]); len(rest) > 0 {
		return o, fmt.Errorf("%s: text after the end", Place(text, bytes.IndexByte(text[o.shut+1:], rest[0])+o.shut+1))
	}
	return o, nil
}

// keyStart is where the key after the last member begins.
func keyStart(text []byte, o Object) int {
	from := o.open + 1
	if len(o.All) > 0 {
		from = o.All[len(o.All)-1].end
	}
	return from + bytes.IndexByte(text[from:], '"')
}

// Members reads the value of m as an object; positions count in the whole text.
func (m Member) Members(text []byte, what string) (Object, error) {
	o, err := Members(m.Value(text), what)
	if err != nil {
		// The text as a whole was read already: the value is no Object, or has a key twice.
		return o, fmt.Errorf("%s: %s is not an object, or has a name twice", Place(text, m.valueStart), what)
	}
	o.open += m.valueStart
	o.shut += m.valueStart
	for i := range o.All {
		o.All[i].start += m.valueStart
		o.All[i].valueStart += m.valueStart
		o.All[i].end += m.valueStart
	}
	return o, nil
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
	if errors.As(err, &syntax) {
		offset := int(syntax.Offset) - 1
		// Within Decode the offset counts from where the value began.
		if whole := wholeSyntaxError(text); whole >= 0 {
			offset = whole
		}
		return fmt.Errorf("%s: %w", Place(text, offset), err)
	}
	return fmt.Errorf("%s: the text ends too early", Place(text, len(text)))
}

// wholeSyntaxError returns the offset of the first syntax error of a text, or -1.
func wholeSyntaxError(text []byte) int {
	var raw json.RawMessage
	var syntax *json.SyntaxError
	if err := json.Unmarshal(text, &raw); errors.As(err, &syntax) {
		return int(syntax.Offset) - 1
	}
	return -1
}

// Set returns text with the member key of the object at path set to value: replaced in its place, or
// added as the last one. Objects on the way are made. All else keeps its bytes.
func Set(text []byte, path []string, key string, value []byte) ([]byte, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}\n")
	}
	o, err := Members(text, "")
	if err != nil {
		return nil, err
	}
	indent := "  "
	for i, step := range path {
		m, ok := o.Find(step)
		if !ok || string(m.Value(text)) == "null" {
			inner := []byte("{}")
			if ok {
				text = splice(text, m.valueStart, m.end, inner)
			} else {
				text = insert(text, o, step, inner, indent)
			}
			return Set(text, path, key, value)
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
	if m, ok := o.Find(key); ok {
		return splice(text, m.valueStart, m.end, pretty.Bytes()), nil
	}
	return insert(text, o, key, pretty.Bytes(), indent), nil
}

// insert adds a member at the end of o.
func insert(text []byte, o Object, key string, value []byte, indent string) []byte {
	name, err := json.Marshal(key)
	if err != nil {
		name = []byte(`""`) // no string fails
	}
	line := "\n" + indent + string(name) + ": " + string(value)
	if n := len(o.All); n > 0 {
		return splice(text, o.All[n-1].end, o.All[n-1].end, []byte(","+line))
	}
	return splice(text, o.open+1, o.shut, []byte(line+"\n"+indent[2:]))
}

// Remove returns text without the member key of the object at path, and whether it was there.
func Remove(text []byte, path []string, key string) (out []byte, found bool, err error) {
	o, err := Members(text, "")
	if err != nil {
		return nil, false, err
	}
	for i, step := range path {
		m, ok := o.Find(step)
		if !ok || string(m.Value(text)) == "null" {
			return text, false, nil
		}
		if o, err = m.Members(text, strings.Join(path[:i+1], ".")); err != nil {
			return nil, false, err
		}
	}
	for i, m := range o.All {
		switch {
		case m.Key != key:
			continue
		case len(o.All) == 1:
			return splice(text, o.open+1, o.shut, nil), true, nil
		case i == 0: // with the comma after it
			return splice(text, m.start, o.All[1].start, nil), true, nil
		default: // with the comma before it
			return splice(text, o.All[i-1].end, m.end, nil), true, nil
		}
	}
	return text, false, nil
}

func splice(text []byte, from, to int, with []byte) []byte {
	out := make([]byte, 0, len(text)+len(with))
	out = append(out, text[:from]...)
	out = append(out, with...)
	return append(out, text[to:]...)
}
