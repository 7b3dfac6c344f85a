package search

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tailscale/hujson"
)

// The longest descriptions in an answer, in characters. A longer one is cut after the last sentence that fits, or
// after a word where no sentence ends in the second half, and ends in "…". The whole is in the tool's wrapper file.
const (
	maxLine        = 200 // of a tool, at sandbox.DetailDesc
	maxDescription = 600 // of a tool, at sandbox.DetailFull: one tool in twenty of real servers has more
	maxParameter   = 200 // of a parameter
)

// cut shortens a text to most characters, the mark included.
func cut(text string, most int) string {
	if len(text) <= most || utf8.RuneCountInString(text) <= most {
		return text
	}
	head := string([]rune(text)[:most-2]) // room for " …"
	end := 0
	for i := len(head) - 1; i > len(head)/2 && end == 0; i-- {
		switch last := i == len(head)-1; head[i] {
		case '\n':
			end = i
		case '.', '!', '?':
			if !last && (head[i+1] == ' ' || head[i+1] == '\n') {
				end = i + 1
			}
		}
	}
	if end > 0 {
		return strings.TrimRight(head[:end], " \n") + " …"
	}
	head = string([]rune(text)[:most-1])
	if i := strings.LastIndexAny(head, " \n"); i > len(head)/2 {
		head = head[:i]
	}
	return strings.TrimRight(head, " \n.,;:") + "…"
}

// maxCutDepth bounds how deep into a schema descriptions are cut.
const maxCutDepth = 32

// The members of a schema that hold schemas: by name, or one or a list of them.
var (
	named  = []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
	nested = []string{
		"items", "prefixItems", "additionalItems", "contains", "additionalProperties", "propertyNames", "anyOf", "oneOf", "allOf", "not",
		"if", "then", "else", "unevaluatedItems", "unevaluatedProperties",
	}
)

// cutSchema returns a schema as an answer shows it: its long descriptions are cut, and "$schema" is left out, for it
// tells a model nothing. All else stays as the server wrote it, in its order.
func cutSchema(schema json.RawMessage) json.RawMessage {
	if len(schema) == 0 {
		return schema
	}
	v, err := hujson.Parse(schema)
	if err != nil {
		return schema
	}
	if o, ok := v.Value.(*hujson.Object); ok {
		o.Members = slices.DeleteFunc(o.Members, func(m hujson.ObjectMember) bool { return nameOf(m) == "$schema" })
	}
	cutWithin(&v, 0)
	v.Minimize()
	return v.Pack()
}

func nameOf(m hujson.ObjectMember) string {
	if l, ok := m.Name.Value.(hujson.Literal); ok {
		return l.String()
	}
	return ""
}

// cutWithin cuts the descriptions of a schema and of those within it.
func cutWithin(v *hujson.Value, depth int) {
	o, ok := v.Value.(*hujson.Object)
	if !ok || depth > maxCutDepth {
		return
	}
	for i := range o.Members {
		m := &o.Members[i]
		name := nameOf(*m)
		switch {
		case name == "description":
			if l, ok := m.Value.Value.(hujson.Literal); ok && l.Kind() == '"' {
				if text := l.String(); cut(text, maxParameter) != text {
					m.Value.Value = hujson.String(cut(text, maxParameter))
				}
			}
		case slices.Contains(named, name):
			if all, ok := m.Value.Value.(*hujson.Object); ok {
				for j := range all.Members {
					cutWithin(&all.Members[j].Value, depth+1)
				}
			}
		case slices.Contains(nested, name):
			if list, ok := m.Value.Value.(*hujson.Array); ok {
				for j := range list.Elements {
					cutWithin(&list.Elements[j], depth+1)
				}
				continue
			}
			cutWithin(&m.Value, depth+1)
		}
	}
}
