package rest

import (
	"bytes"
	"fmt"
	"go/format"
	"strconv"
	"strings"
)

// goText is sdk/go/models.go.
func (c *clientModels) goText() string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\npackage skerry\n\nimport (\n\"encoding/json\"\n\"time\"\n)\n", clientModelsMark)
	for _, m := range c.models {
		if m.only == tsClient {
			continue
		}
		b.WriteString("\n")
		goComment(&b, m.name+" "+m.is)
		fmt.Fprintf(&b, "type %s struct {\n", m.name)
		widest := 0
		for _, f := range m.made {
			widest = max(widest, len(f.goName())+len(c.goType(f))+len(f.goTag()))
		}
		for _, f := range m.made {
			note := f.goNote()
			beside := widest+len(note)+len("\t  `` // ") < commentWidth
			if note != "" && !beside {
				goComment(&b, note)
			}
			fmt.Fprintf(&b, "%s %s `%s`", f.goName(), c.goType(f), f.goTag())
			if note != "" && beside {
				b.WriteString(" // " + note)
			}
			b.WriteString("\n")
		}
		b.WriteString("}\n")
	}
	text, err := format.Source(b.Bytes())
	if err != nil {
		c.t.Fatalf("%v in\n%s", err, b.String())
	}
	return string(text)
}

const commentWidth = 110

func goComment(b *bytes.Buffer, text string) {
	for _, line := range wrapped(named.ReplaceAllString(text, "$1"), commentWidth-len("\t// ")) {
		b.WriteString("// " + line + "\n")
	}
}

// goNote is the comment of a field, with the values that it may have.
func (f clientField) goNote() string {
	var quoted []string
	for _, v := range f.values() {
		quoted = append(quoted, strconv.Quote(v))
	}
	text := ""
	if last := len(quoted) - 1; last > 0 {
		text = strings.Join(quoted[:last], ", ") + " or " + quoted[last]
	}
	if note := f.note(); note != "" {
		text = strings.TrimSuffix(note+"; "+text, "; ")
	}
	return named.ReplaceAllString(text, "$1")
}

func (f clientField) goTag() string {
	if f.required {
		return `json:"` + f.name + `"`
	}
	return `json:"` + f.name + `,omitempty"`
}

// inCapitals are the parts of names that Go writes in another way than with one capital.
var inCapitals = map[string]string{
	"cpu": "CPU", "id": "ID", "mime": "MIME", "ms": "Millis", "ok": "OK", "oom": "OOM", "pid": "PID", "pids": "PIDs", "pty": "PTY", "rss": "RSS", "s": "Seconds", "sha256": "SHA256",
}

func (f clientField) goName() string {
	for _, key := range []string{f.key, f.name} {
		if own := goFieldNames[key]; own != "" {
			return own
		}
	}
	name := ""
	for part := range strings.SplitSeq(f.name, "_") {
		if own := inCapitals[part]; own != "" {
			name += own
		} else {
			name += strings.ToUpper(part[:1]) + part[1:]
		}
	}
	return name
}

// goType is the type of a field. A reference or a time that may be absent is a pointer.
func (c *clientModels) goType(f clientField) string {
	for _, key := range []string{f.key, f.name} {
		if own := goFieldTypes[key]; own != "" {
			return own
		}
	}
	plain := c.goTypeOf(f.apiSchema)
	if !f.required && (f.Ref != "" || plain == "time.Time") {
		return "*" + plain
	}
	return plain
}

func (c *clientModels) goTypeOf(s apiSchema) string {
	if ref := refName(s); ref != "" {
		return c.model(ref).name
	}
	if s.Items != nil {
		return "[]" + c.goTypeOf(*s.Items)
	}
	if inner, ok := mapOf(s); ok {
		return "map[string]" + c.goTypeOf(inner)
	}
	kind, orNull := s.kind()
	plain := map[string]string{"": "json.RawMessage", "boolean": "bool", "integer": "int64", "number": "float64", "string": "string"}[kind]
	switch {
	case plain == "":
		c.t.Errorf("no Go type for the JSON type %s", kind)
	case s.Format == "date-time":
		plain = "time.Time"
	}
	if orNull {
		return "*" + plain
	}
	return plain
}
