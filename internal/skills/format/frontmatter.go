package format

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Limits of a Markdown file with frontmatter.
const (
	// MaxTextBytes is the most that SKILL.md or a command may have.
	MaxTextBytes = 1 << 20
	// maxFrontBytes, maxNodes and maxNesting bound the YAML. Aliases count each time that they are used,
	// so that a few lines cannot stand for millions of values.
	maxFrontBytes = 64 << 10
	maxNodes      = 5000
	maxNesting    = 32
	// maxFindings is the most that one file or skill is told.
	maxFindings = 100
	// maxFinding is the most characters of a finding's message that a file has a say in.
	maxFinding = 300
)

// Front is a Markdown file with YAML at its head: SKILL.md, or a command of a plugin.
type Front struct {
	Fields map[string]any  // as encoding/json would decode it, whole numbers as int or uint64; times are text
	Lines  map[string]int  // the line, from 1, of each member of Fields
	JSON   json.RawMessage // Fields as a JSON object
	Body   []byte          // the Markdown below, with \n at the ends of its lines
}

// ReadFront reads a Markdown file that begins with a line "---", a YAML mapping, and a line "---". It is
// lenient. Findings are a byte order mark, \r\n, blank lines before, bytes that are no UTF-8, and a key that
// is there twice. So are values that YAML refuses because of an unquoted ": ". The error is Invalid, is the
// last of the findings, too, and leaves Fields nil. Body is what could be told apart. The findings name no
// file: the caller knows which one it is. For a file without frontmatter it returns ErrNoFront, and all of
// it as Body.
func ReadFront(text []byte) (Front, []sandbox.Finding, error) {
	var r reader
	text, err := r.clean(text)
	if err != nil {
		return Front{}, r.findings, err
	}
	head, body, first, ok := cutFront(text)
	if first > 2 {
		r.add("frontmatter-not-first", sandbox.SeverityWarning, 1, "there are blank lines before the frontmatter; the file should begin with ---")
	}
	f := Front{Body: body}
	switch {
	case first == 0:
		return f, append(r.findings, finding("no-frontmatter", sandbox.SeverityError, 1, "%s", ErrNoFront)), ErrNoFront
	case !ok:
		return f, r.findings, r.fail("frontmatter-not-closed", first-1, "the frontmatter has no closing line ---")
	case len(head) > maxFrontBytes:
		return f, r.findings, r.fail("frontmatter-too-large", first, "the frontmatter has more than %d bytes", maxFrontBytes)
	}
	root, err := r.yaml(head, first)
	if err == nil {
		err = f.fill(&r, root, first)
	}
	return f, r.findings, err
}

// ErrNoFront says that a file does not begin with frontmatter.
var ErrNoFront = sandbox.Errorf(sandbox.Invalid, "the file does not begin with a line ---, YAML, and a line ---")

// reader collects what is noticed.
type reader struct {
	findings []sandbox.Finding
}

func finding(rule, severity string, line int, format string, args ...any) sandbox.Finding {
	return sandbox.Finding{Rule: rule, Severity: severity, Line: line, Message: fmt.Sprintf(format, args...)}
}

// add notes a finding; the last place is kept for an error.
func (r *reader) add(rule, severity string, line int, format string, args ...any) {
	if len(r.findings) < maxFindings-1 {
		r.findings = append(r.findings, finding(rule, severity, line, format, args...))
	}
}

// fail notes what the file cannot be loaded with, and returns it as an error.
func (r *reader) fail(rule string, line int, format string, args ...any) error {
	f := finding(rule, sandbox.SeverityError, line, format, args...)
	r.findings = append(r.findings, f)
	return sandbox.Errorf(sandbox.Invalid, "%s", f.Message)
}

// clean makes the text one of \n and UTF-8.
func (r *reader) clean(text []byte) ([]byte, error) {
	if len(text) > MaxTextBytes {
		return nil, r.fail("too-large", 0, "the file has more than %d bytes", MaxTextBytes)
	}
	if rest, ok := bytes.CutPrefix(text, []byte("\ufeff")); ok {
		text = rest
		r.add("byte-order-mark", sandbox.SeverityInfo, 1, "the file begins with a byte order mark; save it without")
	}
	if bytes.Contains(text, []byte("\r\n")) {
		text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
		r.add("crlf", sandbox.SeverityInfo, 1, "lines end in \\r\\n; save the file with \\n")
	}
	if !utf8.Valid(text) {
		text = bytes.ToValidUTF8(text, []byte("\ufffd"))
		r.add("not-utf8", sandbox.SeverityWarning, 0, "the file is not UTF-8; the bytes in question are read as U+FFFD")
	}
	return text, nil
}

// cutFront returns the YAML, which begins at line first, and what comes after it. first is 0 when there is none,
// ok false when nothing closes it.
func cutFront(text []byte) (head, body []byte, first int, ok bool) {
	rest, line := text, 0
	for {
		var l []byte
		l, rest, ok = bytes.Cut(rest, []byte("\n"))
		line++
		if l = bytes.TrimRight(l, " \t"); string(l) == "---" {
			break
		}
		if len(l) > 0 || !ok {
			return nil, text, 0, false
		}
	}
	for at := 0; at < len(rest); {
		l, _, more := bytes.Cut(rest[at:], []byte("\n"))
		next := at + len(l)
		if more {
			next++
		}
		if string(bytes.TrimRight(l, " \t")) == "---" {
			return rest[:at], rest[next:], line + 1, true
		}
		at = next
	}
	return nil, rest, line + 1, false
}

// yaml reads the head, if need be repaired. It returns a mapping, or nil when there is nothing.
func (r *reader) yaml(head []byte, first int) (*yaml.Node, error) {
	root, err := parseYAML(head)
	if err != nil {
		repaired, lines := repair(head)
		again, e := parseYAML(repaired)
		if e != nil || len(lines) == 0 {
			line, message := yamlProblem(err)
			return nil, r.fail("yaml", first+max(line-1, 0), "the frontmatter is not YAML: %s", message)
		}
		root = again
		for _, l := range lines {
			r.add("yaml-repaired", sandbox.SeverityWarning, first+l-1, "the value is not YAML and was read as text; put it in quotes")
		}
	}
	if root != nil && root.Kind != yaml.MappingNode {
		return nil, r.fail("yaml", first, "the frontmatter is not a mapping of keys to values")
	}
	return root, nil
}

func parseYAML(text []byte) (*yaml.Node, error) {
	var doc yaml.Node
	// The parser's own limit of 10,000 lets 60 KiB of brackets take seconds.
	loader, err := yaml.NewLoader(bytes.NewReader(text), yaml.WithSingleDocument(), yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(2*maxNesting))))
	if err == nil {
		err = loader.Load(&doc)
	}
	if err != nil && !errors.Is(err, io.EOF) { // EOF: there is nothing but comments
		return nil, err
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) == 0 {
		return nil, nil //nolint:nilnil // no YAML, and nothing wrong with it
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" {
		return nil, nil //nolint:nilnil // as above
	}
	return root, nil
}

func yamlProblem(err error) (line int, message string) {
	var load *yaml.LoadError
	if errors.As(err, &load) {
		return load.Mark.Line, cut(load.Message)
	}
	return 0, cut(err.Error())
}

func cut(s string) string {
	if r := []rune(s); len(r) > maxFinding {
		return string(r[:maxFinding]) + "…"
	}
	return s
}

// fill decodes the mapping.
func (f *Front) fill(r *reader, root *yaml.Node, first int) error {
	f.Fields, f.Lines = map[string]any{}, map[string]int{}
	d := decoder{left: maxNodes}
	for i := 0; root != nil && i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		line := first + key.Line - 1
		if key.Kind != yaml.ScalarNode {
			r.add("yaml-key", sandbox.SeverityWarning, line, "a key is not a word; it is left out")
			continue
		}
		if _, twice := f.Fields[key.Value]; twice {
			r.add("duplicate-key", sandbox.SeverityWarning, line, "%q is there twice; the last one counts", cut(key.Value))
		}
		v, err := d.value(value, 0)
		if err != nil {
			f.Fields, f.Lines = nil, nil
			return r.fail("yaml-too-much", line, "%s", err)
		}
		f.Fields[key.Value], f.Lines[key.Value] = v, line
	}
	raw, err := json.Marshal(f.Fields)
	if err != nil {
		f.Fields, f.Lines = nil, nil
		return r.fail("yaml", first, "the frontmatter cannot be written as JSON")
	}
	f.JSON = raw
	return nil
}

// decoder makes values of nodes; left is how many more.
type decoder struct{ left int }

var errTooMuch = fmt.Errorf("the frontmatter stands for more than %d values, or is nested more than %d deep", maxNodes, maxNesting)

func (d *decoder) value(n *yaml.Node, depth int) (any, error) {
	if d.left--; d.left < 0 || depth > maxNesting {
		return nil, errTooMuch
	}
	switch n.Kind {
	case yaml.AliasNode:
		return d.value(n.Alias, depth+1)
	case yaml.SequenceNode:
		list := make([]any, 0, min(len(n.Content), maxNodes))
		for _, c := range n.Content {
			v, err := d.value(c, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case yaml.MappingNode:
		m := make(map[string]any, min(len(n.Content)/2, maxNodes))
		for i := 0; i+1 < len(n.Content); i += 2 {
			v, err := d.value(n.Content[i+1], depth+1)
			if err != nil {
				return nil, err
			}
			m[n.Content[i].Value] = v
		}
		return m, nil
	default:
		return scalar(n), nil
	}
}

// scalar returns text, a boolean, a number or nil. What JSON has no word for stays the text that it is.
func scalar(n *yaml.Node) any {
	var v any
	switch n.ShortTag() {
	case "!!bool", "!!int", "!!float", "!!null":
		if err := n.Decode(&v); err != nil {
			return n.Value
		}
	default:
		return n.Value
	}
	switch x := v.(type) {
	case nil, bool, int, uint64:
		return x
	case int64:
		return int(x)
	case float64:
		if !math.IsNaN(x) && !math.IsInf(x, 0) {
			return x
		}
	}
	return n.Value
}

// repair quotes the values that YAML refuses, such as `description: Use when: asked`, which many authors
// write and most readers take. It changes only a value that is wrong by itself, with the lines that continue
// it; it leaves block scalars alone. lines are the changed lines, from 1.
func repair(head []byte) (out []byte, lines []int) {
	all := strings.SplitAfter(string(head), "\n")
	var b strings.Builder
	for i := 0; i < len(all); {
		end := i + 1
		for end < len(all) && continues(all[end]) {
			end++
		}
		entry := strings.Join(all[i:end], "")
		key, value, ok := strings.Cut(entry, ":")
		value = strings.Join(strings.Fields(value), " ")
		if ok && value != "" && !strings.ContainsAny(value[:1], "|>") && !strings.HasPrefix(entry, " ") {
			if _, err := parseYAML([]byte(entry)); err != nil {
				lines = append(lines, i+1)
				entry = key + ": '" + strings.ReplaceAll(value, "'", "''") + "'" + strings.Repeat("\n", end-i)
			}
		}
		b.WriteString(entry)
		i = end
	}
	return []byte(b.String()), lines
}

// continues says whether a line belongs to the key above it.
func continues(line string) bool {
	return strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") || strings.TrimSpace(line) == "" && line != ""
}
