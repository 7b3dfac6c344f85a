package codeapi

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

const pyAny = "Any"

// maxPyDepth bounds how deep an annotation looks into a schema. Beyond it is Any.
const maxPyDepth = 8

// pyNames are the names that a module has besides its functions.
var pyNames = set("Any Dict List Literal Required TypedDict Union MCPToolError TYPE_CHECKING")

// pyTypeNames are all names that annotations use. A class with a member of such a name would take it for
// the member.
var pyTypeNames = union(pyNames, set("str int float bool None"))

// pyTaken are the names that no function may have: it would stand for a type in all annotations.
var pyTaken = union(pythonKeywords, pyTypeNames)

func union(a, b map[string]bool) map[string]bool {
	m := maps.Clone(a)
	maps.Copy(m, b)
	return m
}

// pyTypes writes annotations for one schema, and a TypedDict for each object whose members are known.
type pyTypes struct {
	schema any
	names  *names            // of the module
	defs   *writer           // of the module, in the block that only type checkers read
	refs   map[string]string // TypedDict by reference
	nodes  int
}

// follow returns the object that a schema is, behind its references.
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

// pyPlace is where a type stands: what a TypedDict there is called, and how deep it is.
type pyPlace struct {
	name  string
	depth int
}

func (p pyPlace) in(part string) pyPlace { return pyPlace{name: p.name + part, depth: p.depth + 1} }

// of returns the annotation of a schema.
func (g *pyTypes) of(schema any, p pyPlace) string {
	g.nodes++
	if s, ok := schema.(*object); ok && s.text("$ref") != "" {
		return g.ref(s, p)
	}
	return g.is(schema, p)
}

// ref returns the annotation of a reference. An object is written once, so that recursive ones end.
func (g *pyTypes) ref(o *object, p pyPlace) string {
	target := g.follow(o)
	if !typed(target) {
		return g.is(target, p)
	}
	ref := o.text("$ref")
	if name := g.refs[ref]; name != "" {
		return name
	}
	return g.typedDict(target, p, ref)
}

func (g *pyTypes) is(schema any, p pyPlace) string {
	o := g.follow(schema)
	if o == nil || p.depth > maxPyDepth || g.nodes > maxTypeNodes {
		return pyAny
	}
	var parts []string
	switch {
	case o.has("const"):
		parts = append(parts, pyLiteral([]any{o.get("const")}))
	case len(o.list("enum")) > 0:
		parts = append(parts, pyLiteral(o.list("enum")))
	case len(o.list("allOf")) > 0:
		parts = append(parts, g.all(o, p))
	case len(o.list("anyOf"))+len(o.list("oneOf")) > 0:
		for _, s := range slices.Concat(o.list("anyOf"), o.list("oneOf")) {
			parts = append(parts, g.of(s, p.in("")))
		}
		// Alternatives that say nothing of the type, such as which members are required together.
		if pyUnion(parts) == pyAny {
			parts = g.named(o, p)
		}
	default:
		parts = g.named(o, p)
	}
	if o.get("nullable") == true {
		parts = append(parts, "None")
	}
	return pyUnion(parts)
}

// all returns the annotation of what is everything that allOf lists: an object with the members of each,
// or the first of its types that is known.
func (g *pyTypes) all(o *object, p pyPlace) string {
	parts := []any{o}
	merged, objects := &object{members: map[string]any{"type": "object"}}, true
	properties := &object{members: map[string]any{}}
	var required []any
	parts = append(parts, o.list("allOf")...)
	for i, s := range parts {
		part := g.follow(s)
		objects = objects && part != nil && mergeable(part, i == 0)
		if !objects {
			break
		}
		if own := part.object("properties"); own != nil {
			for _, key := range own.keys {
				if !properties.has(key) {
					properties.keys = append(properties.keys, key)
				}
				properties.members[key] = own.members[key]
			}
		}
		required = append(required, part.list("required")...)
	}
	if objects && len(properties.keys) > 0 {
		merged.members["properties"], merged.members["required"] = properties, required
		return g.dict(merged, p)
	}
	if own := pyUnion(g.named(o, p)); own != pyAny {
		return own
	}
	for _, s := range parts[1:] {
		if t := g.of(s, p.in("")); t != pyAny {
			return t
		}
	}
	return pyAny
}

// mergeable reports whether a part of an allOf says no more than which members an object has. self is
// the schema that has the allOf.
func mergeable(part *object, self bool) bool {
	if slices.ContainsFunc([]string{"const", "enum", "anyOf", "oneOf", "patternProperties"}, part.has) {
		return false
	}
	if more, ok := part.members["additionalProperties"]; ok && more != false {
		return false
	}
	kind := part.get("type")
	return (self || !part.has("allOf")) && (kind == nil || kind == "object")
}

func (g *pyTypes) named(o *object, p pyPlace) []string {
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
			parts = append(parts, g.list(o, p))
		case "object":
			parts = append(parts, g.dict(o, p))
		default:
			parts = append(parts, "Any")
		}
	}
	return parts
}

func (g *pyTypes) list(o *object, p pyPlace) string {
	items := o.get("items")
	first, isTuple := items.([]any) // before 2020-12
	if isTuple {
		items = o.get("additionalItems")
	} else {
		first = o.list("prefixItems")
	}
	// What JSON has is a list, whatever stands where in it.
	var parts []string
	for _, s := range first[:min(len(first), 16)] {
		parts = append(parts, g.of(s, p.in("Item")))
	}
	if items != false && (len(parts) == 0 || o.get("maxItems") == nil) {
		parts = append(parts, g.of(items, p.in("Item")))
	}
	return "List[" + pyUnion(parts) + "]"
}

func (g *pyTypes) dict(o *object, p pyPlace) string {
	if typed(o) && p.depth < maxPyDepth {
		return g.typedDict(o, p, "")
	}
	others, ok := o.get("additionalProperties").(*object)
	if !ok || o.has("properties") || o.has("patternProperties") {
		return "Dict[str, Any]"
	}
	return "Dict[str, " + g.of(others, p.in("Value")) + "]"
}

// typed reports whether the object's members can be those of a TypedDict: no others are foreseen.
func typed(o *object) bool {
	properties := o.object("properties")
	kind := o.get("type")
	if properties == nil || kind != nil && kind != "object" || o.has("patternProperties") || o.get("nullable") == true {
		return false
	}
	if more, ok := o.members["additionalProperties"]; ok && more != false {
		return false
	}
	if slices.ContainsFunc([]string{"const", "enum", "anyOf", "oneOf", "allOf", "$ref"}, o.has) {
		return false
	}
	return len(properties.keys) > 0 && !properties.has("") // which no TypedDict can name
}

// typedDict writes a class for an object and returns its name.
func (g *pyTypes) typedDict(o *object, p pyPlace, ref string) string {
	if g.nodes > maxTypeNodes {
		return "Dict[str, Any]"
	}
	name := g.names.take(p.name)
	if ref != "" {
		g.refs[ref] = name
	}
	var body writer
	required, properties := o.required(), o.object("properties")
	asClass := !slices.ContainsFunc(properties.keys, func(key string) bool {
		return !isIdentifier(key) || strings.HasPrefix(key, "__") || pyTaken[key]
	})
	for _, key := range properties.keys {
		schema := properties.members[key]
		text := g.of(schema, p.in(pascal(camelCase(key))))
		if required[key] {
			text = "Required[" + text + "]"
		}
		if !asClass {
			key, text = quote(key), quote(text)+","
		}
		about, _ := schema.(*object)
		if d := strings.Join(clean(describe(about)), " "); d != "" {
			text += "  # " + d
		}
		body.line("        %s: %s", key, text)
	}
	if asClass {
		g.defs.line("\n    class %s(TypedDict, total=False):\n%s", name, strings.TrimSuffix(body.String(), "\n"))
	} else {
		g.defs.line("\n    %s = TypedDict(%s, {\n%s    }, total=False)", name, quote(name), body.String())
	}
	return name
}

// pyLiteral returns the annotation of values. Only texts, whole numbers, truth values and null can be
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
