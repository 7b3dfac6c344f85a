package codeapi

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// Bounds of one type. What lies beyond is unknown.
const (
	maxTypeDepth = 16
	maxTypeNodes = 4000
	maxNumber    = 32  // characters of a literal
	maxDefault   = 100 // characters of a default that is shown
)

// tsType is a type expression. op is its outermost operator, 0 for none.
type tsType struct {
	text string
	op   byte
}

var (
	tsUnknown = tsType{text: "unknown"}
	tsNever   = tsType{text: "never"}
	tsMap     = tsType{text: "{ [key: string]: unknown }"}
)

// tsTypes writes the types of one schema. The schema itself becomes the type called root; each
// reference becomes a type of its own, so that recursive schemas end.
type tsTypes struct {
	schema  any
	root    string
	aliases map[string]string // by reference
	names   names
	queue   []string // references whose types are still to be written
	// edges are the types that a type needs before it is known at all: those outside of an object or
	// an array. A circle of them is an error in TypeScript.
	edges map[string][]string
	nodes int
}

// place says where a type stands.
type place struct {
	owner  string // the type that cannot be known before this one is; "" within an object or array
	indent string
	depth  int
}

func (p place) within(indent string) place {
	return place{indent: indent, depth: p.depth + 1}
}

func (p place) beside() place {
	p.depth++
	return p
}

// writeTypes writes the type called name, and the types it refers to. It reports whether the type is
// written as one object, and whether {} is a value of it.
func writeTypes(w *writer, name string, schema any) (plain, empty bool) {
	g := &tsTypes{
		schema: schema, root: name, aliases: map[string]string{"#": name}, edges: map[string][]string{},
		names: names{used: map[string]bool{name: true}},
	}
	t := g.of(schema, place{owner: name})
	o, _ := schema.(*object)
	if o.text("type") == "object" || t == tsUnknown && o.get("type") == nil {
		plain = t == tsUnknown || t.op == 0 && t.text[0] == '{'
		empty = plain && len(o.required()) == 0
	}
	if t == tsUnknown && plain {
		t = tsMap
	}
	w.line("export type %s = %s;", name, t.text)
	for len(g.queue) > 0 {
		ref := g.queue[0]
		g.queue = g.queue[1:]
		target, _ := resolve(schema, ref)
		alias := g.aliases[ref]
		text := g.of(target, place{owner: alias}).text
		o, _ := target.(*object)
		w.line("\n%sexport type %s = %s;", tsComment("", o.text("description")), alias, text)
	}
	return plain, empty
}

// of returns the type of a schema.
func (g *tsTypes) of(schema any, p place) tsType {
	g.nodes++
	if g.nodes > maxTypeNodes || p.depth > maxTypeDepth {
		return tsUnknown
	}
	o, ok := schema.(*object)
	if !ok {
		if schema == false {
			return tsNever
		}
		return tsUnknown
	}
	var parts []tsType
	if ref := o.text("$ref"); ref != "" {
		parts = append(parts, g.ref(ref, p))
	}
	parts = append(parts, g.base(o, p))
	for _, key := range []string{"anyOf", "oneOf"} {
		if list := o.list(key); len(list) > 0 {
			parts = append(parts, g.union(list, p))
		}
	}
	for _, s := range o.list("allOf") {
		parts = append(parts, g.of(s, p.beside()))
	}
	t := intersect(parts)
	if o.get("nullable") == true {
		t = unite([]tsType{t, {text: "null"}})
	}
	return t
}

func (g *tsTypes) union(list []any, p place) tsType {
	var parts []tsType
	for _, s := range list {
		parts = append(parts, g.of(s, p.beside()))
	}
	return unite(parts)
}

// ref returns the name of the type that a reference leads to.
func (g *tsTypes) ref(ref string, p place) tsType {
	if _, ok := resolve(g.schema, ref); !ok {
		return tsUnknown
	}
	alias, ok := g.aliases[ref]
	if !ok {
		last := words(unescapeStep(ref[strings.LastIndexByte(ref, '/')+1:]))
		alias = g.names.take(g.root + "_" + startable(pascal(strings.Join(last, "_"))))
		g.aliases[ref] = alias
		g.queue = append(g.queue, ref)
	}
	if p.owner != "" {
		if g.needs(alias, p.owner, map[string]bool{}) {
			return tsUnknown
		}
		g.edges[p.owner] = append(g.edges[p.owner], alias)
	}
	return tsType{text: alias}
}

// needs reports whether type a must know type b first.
func (g *tsTypes) needs(a, b string, seen map[string]bool) bool {
	if a == b {
		return true
	}
	if seen[a] {
		return false
	}
	seen[a] = true
	return slices.ContainsFunc(g.edges[a], func(next string) bool { return g.needs(next, b, seen) })
}

// base returns the type that the schema's own type, const and enum say.
func (g *tsTypes) base(o *object, p place) tsType {
	if o.has("const") {
		return literal(o.get("const"))
	}
	if list := o.list("enum"); len(list) > 0 {
		if g.nodes += len(list); g.nodes <= maxTypeNodes {
			var parts []tsType
			for _, v := range list {
				parts = append(parts, literal(v))
			}
			return unite(parts)
		}
	}
	switch t := o.get("type").(type) {
	case string:
		return g.named(t, o, p)
	case []any:
		var parts []tsType
		for _, v := range t[:min(len(t), 16)] {
			name, _ := v.(string)
			parts = append(parts, g.named(name, o, p))
		}
		return unite(parts)
	}
	switch {
	case o.object("properties") != nil, o.object("additionalProperties") != nil, o.object("patternProperties") != nil:
		return g.object(o, p)
	case o.has("items"), o.has("prefixItems"):
		return g.array(o, p)
	}
	return tsUnknown
}

func (g *tsTypes) named(name string, o *object, p place) tsType {
	switch name {
	case "object":
		return g.object(o, p)
	case "array":
		return g.array(o, p)
	case "integer", "number":
		return tsType{text: "number"}
	case "string", "boolean", "null":
		return tsType{text: name}
	}
	return tsUnknown
}

func literal(v any) tsType {
	switch v := v.(type) {
	case nil:
		return tsType{text: "null"}
	case bool:
		if v {
			return tsType{text: "true"}
		}
		return tsType{text: "false"}
	case string:
		return tsType{text: quote(v)}
	case json.Number:
		if len(v) > maxNumber {
			return tsType{text: "number"}
		}
		return tsType{text: v.String()}
	}
	return tsUnknown
}

// object returns the type of an object: its members, and what other members may be.
func (g *tsTypes) object(o *object, p place) tsType {
	inner := p.indent + "  "
	properties, required := o.object("properties"), o.required()
	var b strings.Builder
	write := func(name string, schema any) {
		if s, ok := schema.(*object); ok {
			b.WriteString(tsComment(inner, describe(s)))
		}
		key := name
		if !isIdentifier(key) {
			key = quote(key)
		}
		mark := "?"
		if required[name] {
			mark = ""
		}
		b.WriteString(inner + key + mark + ": " + g.of(schema, p.within(inner)).text + ";\n")
	}
	if properties != nil {
		for _, name := range properties.keys {
			write(name, properties.members[name])
		}
	}
	for _, v := range o.list("required") {
		if name, ok := v.(string); ok && required[name] && !properties.has(name) {
			write(name, true)
			delete(required, name)
		}
	}
	if others, ok := g.others(o, b.Len() > 0, p); ok {
		if b.Len() == 0 {
			return tsType{text: "{ [key: string]: " + others.text + " }"}
		}
		b.WriteString(inner + "[key: string]: " + others.text + ";\n")
	}
	return tsType{text: "{\n" + b.String() + p.indent + "}"}
}

// others returns the type of the members that are not named. ok is false when there are none: then a
// misspelt name is an error of the compiler. Beside named members it must allow each of their types.
func (g *tsTypes) others(o *object, named bool, p place) (t tsType, ok bool) {
	schemas := []any{}
	if patterns := o.object("patternProperties"); patterns != nil {
		for _, key := range patterns.keys {
			schemas = append(schemas, patterns.members[key])
		}
	}
	additional, given := o.members["additionalProperties"]
	if given && additional != false {
		schemas = append(schemas, additional)
	}
	switch {
	case named && len(schemas) > 0:
		return tsUnknown, true
	case named:
		return tsType{}, false
	case len(schemas) > 0 && given:
		return g.union(schemas, p.within(p.indent)), true
	case additional == false:
		return tsNever, true
	}
	return tsUnknown, true
}

// array returns the type of an array or a tuple.
func (g *tsTypes) array(o *object, p place) tsType {
	first, rest := o.list("prefixItems"), o.get("items")
	if list, ok := rest.([]any); ok {
		first, rest = list, o.get("additionalItems")
	}
	if len(first) == 0 {
		return arrayOf(g.of(rest, p.within(p.indent)))
	}
	atLeast := 0
	if n, ok := o.get("minItems").(json.Number); ok {
		if i, err := n.Int64(); err == nil && i > 0 {
			atLeast = int(min(i, int64(len(first))))
		}
	}
	var parts []string
	for i, s := range first {
		t := g.of(s, p.within(p.indent))
		if i >= atLeast {
			t.text = paren(t) + "?"
		}
		parts = append(parts, t.text)
	}
	closed := rest == false
	if n, ok := o.get("maxItems").(json.Number); ok && n.String() == strconv.Itoa(len(first)) {
		closed = true
	}
	if !closed {
		parts = append(parts, "..."+arrayOf(g.of(rest, p.within(p.indent))).text)
	}
	return tsType{text: "[" + strings.Join(parts, ", ") + "]"}
}

func arrayOf(t tsType) tsType { return tsType{text: paren(t) + "[]"} }

func paren(t tsType) string {
	if t.op != 0 {
		return "(" + t.text + ")"
	}
	return t.text
}

// unite returns a type whose values are those of any part.
func unite(parts []tsType) tsType {
	var texts []string
	for _, t := range parts {
		switch {
		case t == tsUnknown:
			return tsUnknown
		case t != tsNever && !slices.Contains(texts, t.text):
			texts = append(texts, t.text)
		}
	}
	switch len(texts) {
	case 0:
		return tsNever
	case 1:
		for _, t := range parts {
			if t.text == texts[0] {
				return t
			}
		}
	}
	return tsType{text: strings.Join(texts, " | "), op: '|'}
}

// intersect returns a type whose values are those of every part.
func intersect(parts []tsType) tsType {
	var kept []tsType
	for _, t := range parts {
		if t != tsUnknown && !slices.Contains(kept, t) {
			kept = append(kept, t)
		}
	}
	switch len(kept) {
	case 0:
		return tsUnknown
	case 1:
		return kept[0]
	}
	texts := make([]string, len(kept))
	for i, t := range kept {
		texts[i] = t.text
		if t.op == '|' {
			texts[i] = paren(t)
		}
	}
	return tsType{text: strings.Join(texts, " & "), op: '&'}
}

// describe returns the description of a property, with its default when that is short.
func describe(o *object) string {
	text := o.text("description")
	if !o.has("default") {
		return text
	}
	var b strings.Builder
	writeJSON(&b, o.get("default"))
	value := b.String()
	if value == "" || len(value) > maxDefault {
		return text
	}
	return strings.TrimSpace(strings.Join(clean(text), "\n") + " (default: " + value + ")")
}
