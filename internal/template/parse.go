package template

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/skerry-sandbox/skerry/internal/platform/editdistance"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// maxFile bounds one file, in bytes: it is written by hand, and never this long.
const maxFile = 64 << 10

// Parse reads one file. The error names every problem, each with its line and field
// ("line 8: limits.memory: …"); a field that is missing has the line of what should hold it.
func Parse(text []byte) (Template, error) { return parse(text, nil) }

// parse is Parse of a template that may extend others, which parent returns by name.
func parse(text []byte, parent func(name string) (Template, error)) (Template, error) {
	if len(text) > maxFile {
		return Template{}, fmt.Errorf("larger than %d bytes", maxFile)
	}
	root, err := document(text)
	if err != nil {
		return Template{}, err
	}
	p := &parser{seen: map[string]int{"": root.Line}}
	t := p.template(root, p.start(root, parent))
	p.check(&t)
	return t, errors.Join(p.errs...)
}

// document returns the single mapping of the text.
func document(text []byte) (*yaml.Node, error) {
	if line := unreadable(text); line > 0 {
		return nil, fmt.Errorf("line %d: a character that no YAML may have: want plain text in UTF-8", line)
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("is empty")
		}
		return nil, err
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		if err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("line %d: a second document; one file holds one template", more.Line)
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: want a mapping with name and image", doc.Line)
	}
	return doc.Content[0], nil
}

// unreadable returns the line of the first byte that is no text, or 0.
func unreadable(text []byte) int {
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && size == 1 || r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0x7f {
			return 1 + bytes.Count(text[:i], []byte{'\n'})
		}
		i += size
	}
	return 0
}

// parser collects what is wrong. seen has the line of each field that was there, by its path
// ("limits.pids"), also when its value was wrong: such a field is reported once, not again by check.
type parser struct {
	errs   []error
	seen   map[string]int
	broken map[string]bool
}

// bad reports a problem of a field at the field's line, or at that of what should hold it.
func (p *parser) bad(field, format string, args ...any) {
	line, ok := p.seen[field]
	for parent := field; !ok; line, ok = p.seen[parent] {
		dot := strings.LastIndexByte(parent, '.')
		if dot < 0 {
			line = p.seen[""]
			break
		}
		parent = parent[:dot]
	}
	p.errs = append(p.errs, fmt.Errorf("line %d: %s: %s", line, field, fmt.Sprintf(format, args...)))
	if p.broken == nil {
		p.broken = map[string]bool{}
	}
	p.broken[field] = true
}

// fields reads a mapping: each known key by its reader, each other key is a problem. Aliases are
// refused: a file this small needs none, and they could nest without end.
func (p *parser) fields(n *yaml.Node, prefix string, known map[string]func(field string, n *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		p.bad(strings.TrimSuffix(prefix, "."), "want a mapping with %s", orList(known))
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		field := prefix + key.Value
		_, twice := p.seen[field]
		p.seen[field] = key.Line
		read, ok := known[key.Value]
		switch {
		case !ok:
			p.bad(fmt.Sprintf("%.80s", field), "there is no such field; %s", meant(key.Value, known))
		case twice:
			p.bad(field, "is there twice")
		case value.Kind == yaml.AliasNode:
			p.bad(field, "aliases are not supported")
		default:
			read(field, value)
		}
	}
}

// meant names the key that was probably meant, or all that there are.
func meant[T any](key string, known map[string]T) string {
	best, least := "", max(2, len(key)/3)+1
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if d := editdistance.Of(strings.ToLower(key), name); d < least {
			best, least = name, d
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %s?", best)
	}
	return "want " + orList(known)
}

func orList[T any](known map[string]T) string {
	return strings.Join(slices.Sorted(maps.Keys(known)), ", ")
}

// defaults are what a template has that says nothing: those of the template base.
func defaults() Template {
	return Template{
		Runtime: "runc", Languages: []string{"typescript", "javascript", "python", "bash"}, IdleSeconds: 900,
		Limits: Limits{Memory: 1 << 30, CPU: 2000, PIDs: 512, OpenFiles: 4096, FileSize: 1 << 30, Tmp: 256 << 20, Disk: 2 << 30},
	}
}

// start is what a template begins with: the defaults, or the template that it extends. That one's name and description
// are its own, and an image replaces all of its images.
func (p *parser) start(root *yaml.Node, parent func(string) (Template, error)) Template {
	t, extends := defaults(), ""
	image, languages := false, false
	for i := 0; i+1 < len(root.Content); i += 2 {
		switch root.Content[i].Value {
		case "extends":
			p.seen["extends"] = root.Content[i].Line
			extends = root.Content[i+1].Value
		case "image":
			image = true
		case "languages":
			languages = true
		}
	}
	if _, said := p.seen["extends"]; said {
		var err error
		switch {
		case parent == nil:
			p.bad("extends", "there is no other template here")
		default:
			if t, err = parent(extends); err != nil {
				p.bad("extends", "%.80q: %v", extends, err)
				t = defaults()
			}
		}
		delete(p.seen, "extends") // it is read again with the others
	}
	t.Name, t.Description, t.Pool = "", "", nil
	if image {
		t.Image, t.ClaimPool = Image{}, ""
	}
	if image || languages { // of others, they may not hold
		t.Smoke, t.Interpreters = nil, nil
	}
	return t
}

func (p *parser) template(root *yaml.Node, t Template) Template {
	var extends string
	p.fields(root, "", map[string]func(string, *yaml.Node){
		"name":           p.text(&t.Name),
		"extends":        p.text(&extends),
		"description":    p.text(&t.Description),
		"runtime":        p.text(&t.Runtime),
		"idle_timeout_s": number(p, &t.IdleSeconds),
		"max_age_s":      number(p, &t.MaxAge),
		"languages":      p.list(&t.Languages),
		"javascript":     p.text(&t.JavaScript),
		"deno": func(field string, n *yaml.Node) {
			t.Deno = &sandbox.DenoPermissions{}
			p.fields(n, field+".", map[string]func(string, *yaml.Node){
				"allow_read": p.list(&t.Deno.Read), "allow_write": p.list(&t.Deno.Write), "allow_net": p.list(&t.Deno.Net),
				"allow_env": p.list(&t.Deno.Env), "allow_run": p.list(&t.Deno.Run),
			})
		},
		"wasm":         p.wasm(&t.Wasm),
		"loosen":       p.list(&t.Loosen),
		"env":          p.variables(&t.Env),
		"interpreters": p.interpreters(&t.Interpreters),
		"smoke":        p.smoke(&t.Smoke),
		"pool":         p.pool(&t.Pool),
		"kubernetes":   p.kubernetes(&t.ClaimPool),
		"image": func(field string, n *yaml.Node) {
			p.fields(n, field+".", map[string]func(string, *yaml.Node){"docker": p.text(&t.Image.Docker), "kubernetes": p.text(&t.Image.Kubernetes), "remote": p.text(&t.Image.Remote), "oci": p.text(&t.Image.OCI)})
		},
		"limits": func(field string, n *yaml.Node) {
			p.fields(n, field+".", map[string]func(string, *yaml.Node){
				"memory": p.size(&t.Limits.Memory), "file_size": p.size(&t.Limits.FileSize), "tmp": p.size(&t.Limits.Tmp), "disk": p.size(&t.Limits.Disk),
				"cpu": p.cores(&t.Limits.CPU), "pids": number(p, &t.Limits.PIDs), "open_files": number(p, &t.Limits.OpenFiles),
			})
		},
	})
	return t
}

// scalar reads one plain value.
func (p *parser) scalar(read func(field, value string)) func(string, *yaml.Node) {
	return func(field string, n *yaml.Node) {
		if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
			p.bad(field, "want one value, not a list, a mapping or nothing")
			return
		}
		read(field, n.Value)
	}
}

func (p *parser) text(to *string) func(string, *yaml.Node) {
	return p.scalar(func(_, value string) { *to = value })
}

func number[T int | int64](p *parser, to *T) func(string, *yaml.Node) {
	return p.scalar(func(field, value string) {
		v, err := strconv.ParseInt(value, 10, 32)
		if err != nil {
			p.bad(field, "%.40q is not a whole number", value)
		}
		*to = T(v)
	})
}

func (p *parser) size(to *Size) func(string, *yaml.Node) {
	return p.scalar(func(field, value string) {
		v, ok := parseSize(value)
		if !ok {
			p.bad(field, "%.40q is not a size such as 512MiB", value)
		}
		*to = v
	})
}

func (p *parser) cores(to *Cores) func(string, *yaml.Node) {
	return p.scalar(func(field, value string) {
		v, ok := parseCores(value)
		if !ok {
			p.bad(field, "%.40q is not an amount of CPU such as 2000m", value)
		}
		*to = v
	})
}

func (p *parser) list(to *[]string) func(string, *yaml.Node) {
	return func(field string, n *yaml.Node) {
		if n.Kind != yaml.SequenceNode {
			p.bad(field, "want a list, such as [a, b]")
			return
		}
		*to = nil
		for i, item := range n.Content {
			at := fmt.Sprintf("%s[%d]", field, i)
			p.seen[at] = item.Line
			p.scalar(func(_, value string) { *to = append(*to, value) })(at, item)
		}
	}
}

var units = []struct {
	suffix string
	bytes  int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"", 1}}

// maxSize is a pebibyte: no limit is larger, and sums of limits stay far from an overflow.
const maxSize = 1 << 50

func parseSize(text string) (Size, bool) {
	for _, u := range units {
		digits, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		v, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || v < 0 || v > maxSize/u.bytes {
			return 0, false
		}
		return Size(v * u.bytes), true
	}
	return 0, false
}

func parseCores(text string) (Cores, bool) {
	digits, milli := strings.CutSuffix(text, "m")
	v, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || v < 0 {
		return 0, false
	}
	if !milli {
		v *= 1000
	}
	return Cores(v), true
}
