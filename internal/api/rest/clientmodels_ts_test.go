package rest

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// tsText is sdk/typescript/src/models.ts.
func (c *clientModels) tsText() string {
	var b bytes.Buffer
	b.WriteString(clientModelsMark)
	for _, a := range tsAliases {
		b.WriteString("\n")
		tsComment(&b, "", tsIs(a.is))
		fmt.Fprintf(&b, "export type %s =%s;\n", a.name, tsUnion(c.field(strings.Fields(a.fields)[0]).values(), "export type "+a.name+" =", ""))
	}
	for _, m := range c.models {
		if m.only == goClient || m.ts == inline {
			continue
		}
		b.WriteString("\n")
		tsComment(&b, "", tsIs(m.is))
		fmt.Fprintf(&b, "export interface %s {\n", m.ts)
		for _, f := range m.tsFields() {
			tsComment(&b, "  ", f.note())
			fmt.Fprintf(&b, "  %s;\n", c.tsField(f, "  "))
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// field finds a field by its key.
func (c *clientModels) field(key string) clientField {
	schema, _, _ := strings.Cut(key, ".")
	for _, f := range c.model(schema).made {
		if f.key == key {
			return f
		}
	}
	c.t.Errorf("the models have no %s", key)
	return clientField{}
}

func (m clientModel) tsFields() []clientField {
	without := strings.Fields(m.withoutTS)
	return slices.DeleteFunc(slices.Clone(m.made), func(f clientField) bool { return slices.Contains(without, f.name) })
}

// tsIs is the comment of a type: "is a file." as "A file."
func tsIs(is string) string {
	_, text, _ := strings.Cut(is, " ")
	return strings.ToUpper(text[:1]) + text[1:]
}

func tsComment(b *bytes.Buffer, indent, text string) {
	text = named.ReplaceAllStringFunc(text, func(name string) string {
		return "`" + strings.ToLower(name[1:2]) + name[2:len(name)-1] + "`"
	})
	switch lines := wrapped(text, commentWidth-len(indent)-len(" * ")); {
	case text == "":
	case len(indent)+len("/**  */")+len(text) <= commentWidth:
		fmt.Fprintf(b, "%s/** %s */\n", indent, text)
	default:
		fmt.Fprintf(b, "%s/**\n%s * %s\n%s */\n", indent, indent, strings.Join(lines, "\n"+indent+" * "), indent)
	}
}

// tsField returns a field without its comment. A field of any type may be undefined.
func (c *clientModels) tsField(f clientField, indent string) string {
	name, typ := f.name, c.tsType(f, indent)
	if !f.required || typ == "unknown" {
		name += "?"
	}
	return name + ": " + typ
}

func (c *clientModels) tsType(f clientField, indent string) string {
	for _, a := range tsAliases {
		if slices.Contains(strings.Fields(a.fields), f.key) {
			return a.name
		}
	}
	if values := slices.Concat(tsValues[f.key], f.values()); len(values) > 0 {
		return strings.TrimPrefix(tsUnion(values, indent+f.name+"?:", indent), " ")
	}
	return c.tsTypeOf(f.apiSchema, indent)
}

// tsUnion is a type of some texts behind what stands before it in its line, or each in a line of its own.
func tsUnion(values []string, before, indent string) string {
	var quoted []string
	for _, v := range values {
		quoted = append(quoted, strconv.Quote(v))
	}
	if line := " " + strings.Join(quoted, " | "); len(before)+len(line) < tsWidth {
		return line
	}
	each := "\n" + indent + "  | "
	return each + strings.Join(quoted, each)
}

const tsWidth = 140

func (c *clientModels) tsTypeOf(s apiSchema, indent string) string {
	if ref := refName(s); ref != "" {
		m := c.model(ref)
		if m.ts != inline {
			return m.ts
		}
		return c.tsObject(m, indent)
	}
	if s.Items != nil {
		return c.tsTypeOf(*s.Items, indent) + "[]"
	}
	if inner, ok := mapOf(s); ok {
		return "Record<string, " + c.tsTypeOf(inner, indent) + ">"
	}
	kind, orNull := s.kind()
	plain := map[string]string{"": "unknown", "boolean": "boolean", "integer": "number", "number": "number", "string": "string"}[kind]
	if plain == "" {
		c.t.Errorf("no TypeScript type for the JSON type %s", kind)
	}
	if orNull {
		return plain + " | null"
	}
	return plain
}

// tsObject is the type of a model without a name.
func (c *clientModels) tsObject(m clientModel, indent string) string {
	var fields []string
	for _, f := range m.tsFields() {
		fields = append(fields, c.tsField(f, indent+"  "))
	}
	if line := strings.Join(fields, "; "); len(line) <= commentWidth {
		return "{ " + line + " }"
	}
	return "{\n" + indent + "  " + strings.Join(fields, ";\n"+indent+"  ") + ";\n" + indent + "}"
}
