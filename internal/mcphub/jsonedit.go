package mcphub

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// member is one member of a JSON object: where it and its value lie in the text.
type member struct {
	key        string
	start      int // of the key
	valueStart int
	end        int
}

func (m member) value(text []byte) []byte { return text[m.valueStart:m.end] }

// object is where the members of a JSON object lie in a text.
type object struct {
	all        []member
	open, shut int // of the braces
}

func (o object) find(key string) (member, bool) {
	for _, m := range o.all {
		if m.key == key {
			return m, true
		}
	}
	return member{}, false
}

// members reads a text that is one JSON object. what names it in an error; "" is the whole file.
func members(text []byte, what string) (object, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	token, err := d.Token()
	if err != nil {
		return object{}, jsonError(text, err)
	}
	if token != json.Delim('{') {
		return object{}, fmt.Errorf("%s: want an object", strings.TrimPrefix(what+" "+place(text, 0), " "))
	}
	o := object{open: int(d.InputOffset()) - 1}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return o, jsonError(text, err)
		}
		m := member{key: token.(string)} // the decoder allows nothing else here
		m.start = keyStart(text, o)
		if _, twice := o.find(m.key); twice {
			return o, fmt.Errorf("%s: %q is there twice", place(text, m.start), m.key)
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return o, jsonError(text, err)
		}
		m.end = int(d.InputOffset())
		m.valueStart = m.end - len(raw)
		o.all = append(o.all, m)
	}
	if _, err := d.Token(); err != nil {
		return o, jsonError(text, err)
	}
	o.shut = int(d.InputOffset()) - 1
	if rest := bytes.TrimSpace(text[o.shut+1:]); len(rest) > 0 {
		return o, fmt.Errorf("%s: text after the end", place(text, bytes.IndexByte(text[o.shut+1:], rest[0])+o.shut+1))
	}
	return o, nil
}

// keyStart is where the key after the last member begins.
func keyStart(text []byte, o object) int {
	from := o.open + 1
	if len(o.all) > 0 {
		from = o.all[len(o.all)-1].end
	}
	return from + bytes.IndexByte(text[from:], '"')
}

// members reads the value of m as an object; positions count in the whole text.
func (m member) members(text []byte, what string) (object, error) {
	o, err := members(m.value(text), what)
	if err != nil {
		// The text as a whole was read already: the value is no object, or has a key twice.
		return o, fmt.Errorf("%s: %s is not an object, or has a name twice", place(text, m.valueStart), what)
	}
	o.open += m.valueStart
	o.shut += m.valueStart
	for i := range o.all {
		o.all[i].start += m.valueStart
		o.all[i].valueStart += m.valueStart
		o.all[i].end += m.valueStart
	}
	return o, nil
}

// place names a position as people count.
func place(text []byte, offset int) string {
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
		return fmt.Errorf("%s: %w", place(text, offset), err)
	}
	return fmt.Errorf("%s: the text ends too early", place(text, len(text)))
}

// wholeSyntaxError gives the offset of the first syntax error of a text, or -1.
func wholeSyntaxError(text []byte) int {
	var raw json.RawMessage
	var syntax *json.SyntaxError
	if err := json.Unmarshal(text, &raw); errors.As(err, &syntax) {
		return int(syntax.Offset) - 1
	}
	return -1
}

// describeJSON says which field of a server's configuration has the wrong type.
func describeJSON(raw []byte, err error) error {
	var known *sandbox.Error
	if errors.As(err, &known) {
		return known
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && wrong.Field != "" {
		return invalidField(wrong.Field, "has the wrong type: %s", wrong.Value)
	}
	if errors.As(err, &wrong) {
		return sandbox.Errorf(sandbox.Invalid, "a server is an object, not a %s", wrong.Value)
	}
	return sandbox.Errorf(sandbox.Invalid, "not JSON (%d bytes)", len(raw))
}

// setMember gives text with the member key of the object at path set to value: replaced in its place, or
// added as the last one. Objects on the way are made. All else keeps its bytes.
func setMember(text []byte, path []string, key string, value []byte) ([]byte, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}\n")
	}
	o, err := members(text, "")
	if err != nil {
		return nil, err
	}
	indent := "  "
	for i, step := range path {
		m, ok := o.find(step)
		if !ok || string(m.value(text)) == "null" {
			inner := []byte("{}")
			if ok {
				text = splice(text, m.valueStart, m.end, inner)
			} else {
				text = insert(text, o, step, inner, indent)
			}
			return setMember(text, path, key, value)
		}
		if o, err = m.members(text, strings.Join(path[:i+1], ".")); err != nil {
			return nil, err
		}
		indent += "  "
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, value, indent, "  "); err != nil {
		return nil, err
	}
	if m, ok := o.find(key); ok {
		return splice(text, m.valueStart, m.end, pretty.Bytes()), nil
	}
	return insert(text, o, key, pretty.Bytes(), indent), nil
}

// insert adds a member at the end of o.
func insert(text []byte, o object, key string, value []byte, indent string) []byte {
	name, err := json.Marshal(key)
	if err != nil {
		name = []byte(`""`) // no string fails
	}
	line := "\n" + indent + string(name) + ": " + string(value)
	if n := len(o.all); n > 0 {
		return splice(text, o.all[n-1].end, o.all[n-1].end, []byte(","+line))
	}
	return splice(text, o.open+1, o.shut, []byte(line+"\n"+indent[2:]))
}

// removeMember gives text without the member key of the object at path, and whether it was there.
func removeMember(text []byte, path []string, key string) (out []byte, found bool, err error) {
	o, err := members(text, "")
	if err != nil {
		return nil, false, err
	}
	for i, step := range path {
		m, ok := o.find(step)
		if !ok || string(m.value(text)) == "null" {
			return text, false, nil
		}
		if o, err = m.members(text, strings.Join(path[:i+1], ".")); err != nil {
			return nil, false, err
		}
	}
	for i, m := range o.all {
		switch {
		case m.key != key:
			continue
		case len(o.all) == 1:
			return splice(text, o.open+1, o.shut, nil), true, nil
		case i == 0: // with the comma after it
			return splice(text, m.start, o.all[1].start, nil), true, nil
		default: // with the comma before it
			return splice(text, o.all[i-1].end, m.end, nil), true, nil
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
