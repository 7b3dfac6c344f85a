package search

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Bounds of what is read of a schema.
const (
	maxSchemaDepth = 6
	maxParameters  = 500
)

// sentence cuts a text after its first sentence.
func sentence(text string) (first, rest string) {
	text = strings.TrimSpace(text)
	for i := range len(text) {
		next := byte(' ')
		if i+1 < len(text) {
			next = text[i+1]
		}
		switch text[i] {
		case '\n':
			if next == '\n' {
				return text[:i], text[i+1:]
			}
		case '.', '!', ';':
			if next == ' ' || next == '\n' {
				return text[:i], text[i+1:]
			}
		}
	}
	return text, ""
}

// node is what is searched of a schema.
type node struct {
	Description string          `json:"description"`
	Properties  json.RawMessage `json:"properties"`
	Items       json.RawMessage `json:"items"`
	AnyOf       json.RawMessage `json:"anyOf"`
	OneOf       json.RawMessage `json:"oneOf"`
	AllOf       json.RawMessage `json:"allOf"`
}

// parameters returns the names and the descriptions of a tool's parameters, and of those within them.
func parameters(schema json.RawMessage) (names, texts []string) {
	p := parameterWalk{}
	p.walk(schema, 0)
	return p.names, p.texts
}

type parameterWalk struct{ names, texts []string }

func (p *parameterWalk) walk(raw json.RawMessage, depth int) {
	var n node
	if depth > maxSchemaDepth || len(p.names) >= maxParameters || len(raw) == 0 || raw[0] != '{' || json.Unmarshal(raw, &n) != nil {
		return
	}
	if depth > 0 && n.Description != "" && len(p.texts) < maxParameters {
		p.texts = append(p.texts, n.Description)
	}
	var properties map[string]json.RawMessage
	if json.Unmarshal(n.Properties, &properties) == nil {
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			if len(p.names) < maxParameters {
				p.names = append(p.names, name)
			}
			p.walk(properties[name], depth+1)
		}
	}
	p.walk(n.Items, depth+1)
	for _, list := range []json.RawMessage{n.AnyOf, n.OneOf, n.AllOf} {
		var parts []json.RawMessage
		if len(list) > 0 && json.Unmarshal(list, &parts) == nil {
			for _, part := range parts {
				p.walk(part, depth+1)
			}
		}
	}
}
