package codeapi

import (
	"encoding/json"
	"slices"
	"strings"
)

// maxPyDepth bounds how deep an annotation looks into a schema. Beyond it is Any.
const maxPyDepth = 8

// pyTypes writes annotations. They name lists, maps and literals; the members of an object stay Any,
// because a dict is what code holds.
type pyTypes struct {
	schema any
	nodes  int
}

// follow gives the object that a schema is, behind its references.
func (g *pyTypes) follow(schema any) *object {
	for range 16 {
		o, ok := schema.(*object)
		if !ok {
			return nil
		}
		ref := o.text("$ref")
		if ref == "" {
			return o
		}
		if schema, ok = resolve(g.schema, ref); !ok {
			return nil
		}
	}
	return nil
}

func (g *pyTypes) root() string { return g.of(g.schema, 0) }

// of gives the annotation of a schema.
func (g *pyTypes) of(schema any, depth int) string {
	g.nodes++
	o := g.follow(schema)
	if o == nil || depth > maxPyDepth || g.nodes > maxTypeNodes {
		return "Any"
	}
	var parts []string
	switch {
	case o.has("const"):
		parts = append(parts, pyLiteral([]any{o.get("const")}))
	case len(o.list("enum")) > 0:
		parts = append(parts, pyLiteral(o.list("enum")))
	case len(o.list("anyOf"))+len(o.list("oneOf")) > 0:
		for _, s := range slices.Concat(o.list("anyOf"), o.list("oneOf")) {
			parts = append(parts, g.of(s, depth+1))
		}
	default:
		parts = g.named(o, depth)
	}
	if o.get("nullable") == true {
		parts = append(parts, "None")
	}
	return pyUnion(parts)
}

func (g *pyTypes) named(o *object, depth int) []string {
	var kinds []any
	switch t := o.get("type").(type) {
	case string:
		kinds = []any{t}
	case []any:
		kinds = t[:min(len(t), 16)]
	default:
		if o.object("properties") != nil {
			kinds = []any{"object"}
		}
	}
	var parts []string
	for _, k := range kinds {
		switch k {
		case "string":
			parts = append(parts, "str")
		case "integer":
			parts = append(parts, "int")
		case "number":
			parts = append(parts, "float")
		case "boolean":
			parts = append(parts, "bool")
		case "null":
			parts = append(parts, "None")
		case "array":
			parts = append(parts, g.list(o, depth))
		case "object":
			parts = append(parts, g.dict(o, depth))
		default:
			parts = append(parts, "Any")
		}
	}
	return parts
}

func (g *pyTypes) list(o *object, depth int) string {
	items, ok := o.get("items").(*object)
	if !ok || o.has("prefixItems") {
		return "List[Any]"
	}
	return "List[" + g.of(items, depth+1) + "]"
}

func (g *pyTypes) dict(o *object, depth int) string {
	others, ok := o.get("additionalProperties").(*object)
	if !ok || o.has("properties") || o.has("patternProperties") {
		return "Dict[str, Any]"
	}
	return "Dict[str, " + g.of(others, depth+1) + "]"
}

// pyLiteral gives the annotation of values. Only texts, whole numbers, truth values and null can be
// literals; a float among them makes the whole a float.
func pyLiteral(values []any) string {
	var parts []string
	var none, float bool
	for _, v := range values[:min(len(values), 200)] {
		switch v := v.(type) {
		case nil:
			none = true
		case bool:
			parts = append(parts, map[bool]string{true: "True", false: "False"}[v])
		case string:
			parts = append(parts, quote(v))
		case json.Number:
			if strings.ContainsAny(v.String(), ".eE") || len(v) > maxNumber {
				float = true
				continue
			}
			parts = append(parts, v.String())
		default:
			return "Any"
		}
	}
	var union []string
	if len(parts) > 0 && len(values) <= 200 {
		union = append(union, "Literal["+strings.Join(parts, ", ")+"]")
	} else if len(parts) > 0 {
		return "Any"
	}
	if float {
		union = append(union, "float")
	}
	if none {
		union = append(union, "None")
	}
	return pyUnion(union)
}

func pyUnion(parts []string) string {
	var kept []string
	for _, p := range parts {
		if p == "Any" {
			return "Any"
		}
		if !slices.Contains(kept, p) {
			kept = append(kept, p)
		}
	}
	switch len(kept) {
	case 0:
		return "Any"
	case 1:
		return kept[0]
	}
	return "Union[" + strings.Join(kept, ", ") + "]"
}
