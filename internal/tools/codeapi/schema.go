package codeapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// Bounds of what is read of a schema. What lies beyond is unknown.
const (
	maxSchemaBytes = 1 << 20
	maxSchemaDepth = 64
)

var errTooDeep = errors.New("the schema is nested too deeply")

// object is a JSON object that keeps the order of its members: people list parameters in the order in
// which they matter.
type object struct {
	keys    []string
	members map[string]any
}

func (o *object) get(key string) any {
	if o == nil {
		return nil
	}
	return o.members[key]
}

func (o *object) has(key string) bool {
	if o == nil {
		return false
	}
	_, ok := o.members[key]
	return ok
}

func (o *object) text(key string) string {
	s, _ := o.get(key).(string)
	return s
}

func (o *object) list(key string) []any {
	l, _ := o.get(key).([]any)
	return l
}

func (o *object) object(key string) *object {
	m, _ := o.get(key).(*object)
	return m
}

// required returns the names that the schema requires.
func (o *object) required() map[string]bool {
	m := map[string]bool{}
	for _, v := range o.list("required") {
		if s, ok := v.(string); ok {
			m[s] = true
		}
	}
	return m
}

// parse reads a schema into *object, []any, string, json.Number, bool and nil. What cannot be read is
// the schema true, which allows anything.
func parse(text json.RawMessage) any {
	if len(text) == 0 || len(text) > maxSchemaBytes {
		return true
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := parseValue(d, 0)
	if err != nil {
		return true
	}
	return v
}

func parseValue(d *json.Decoder, depth int) (any, error) {
	if depth > maxSchemaDepth {
		return nil, errTooDeep
	}
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		return parseObject(d, depth)
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := parseValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.Token()
		return list, err
	}
	return token, nil
}

func parseObject(d *json.Decoder, depth int) (any, error) {
	o := &object{members: map[string]any{}}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		key, ok := token.(string)
		if !ok {
			return nil, errors.New("a member without a name")
		}
		v, err := parseValue(d, depth+1)
		if err != nil {
			return nil, err
		}
		if !o.has(key) {
			o.keys = append(o.keys, key)
		}
		o.members[key] = v
	}
	_, err := d.Token()
	return o, err
}

// resolve follows a reference within the schema ("#/$defs/node"). ok is false for any other one and
// for a reference that leads nowhere.
func resolve(root any, ref string) (target any, ok bool) {
	path, ok := strings.CutPrefix(ref, "#")
	if !ok || path != "" && path[0] != '/' {
		return nil, false
	}
	target = root
	if path == "" {
		return target, true
	}
	for step := range strings.SplitSeq(path[1:], "/") {
		step = unescapeStep(step)
		switch v := target.(type) {
		case *object:
			if target, ok = v.members[step]; !ok {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(v) {
				return nil, false
			}
			target = v[i]
		default:
			return nil, false
		}
	}
	return target, true
}

// unescapeStep undoes the escapes of a JSON pointer in a URI fragment.
func unescapeStep(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(b.String())
}

// writeJSON writes what parse has read, until it is longer than a default that is shown.
func writeJSON(b *strings.Builder, v any) {
	if b.Len() > maxDefault {
		return
	}
	switch v := v.(type) {
	case *object:
		b.WriteByte('{')
		for i, key := range v.keys {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(quote(key) + ":")
			writeJSON(b, v.members[key])
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, part := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			writeJSON(b, part)
		}
		b.WriteByte(']')
	case string:
		b.WriteString(quote(v))
	case json.Number:
		b.WriteString(v.String())
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case nil:
		b.WriteString("null")
	}
}
