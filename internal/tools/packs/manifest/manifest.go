package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/schema"
	packsv1 "github.com/skerry-sandbox/skerry/sdk/packs/v1"
)

// Limits of a manifest. Bytes of descriptions and schemas are those that the hub takes of any server.
const (
	MaxTools       = 1000
	maxDescription = 16 << 10
	maxTitle       = 512
	maxSchema      = 256 << 10
	maxAnnotations = 16 << 10
	MaxBytes       = 8 << 20 // of all descriptions and schemas
	maxVersion     = 64
	maxParallel    = 1000
	defParallel    = 16
	defTimeout     = 30   // seconds
	maxTimeout     = 3600 // seconds
)

// Manifest is one that was checked. It does not change.
type Manifest struct {
	ID          string
	Version     string
	Description string
	Parallel    int
	Tools       []sandbox.PackTool
	List        json.RawMessage // the result of MCP's tools/list
	Config      json.RawMessage // a server's configuration, with the terms of each tool
	Digest      string          // of all before
}

var (
	idPattern   = regexp.MustCompile(`^[a-z](?:[a-z0-9]|-[a-z0-9])*$`)
	toolPattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
)

// maxID is how long the id of a pack may be.
const maxID = 63

// CheckID refuses what cannot be the name of a pack. Servers of plugins are named plugin:…, so that name is theirs.
func CheckID(id string) error {
	if len(id) > maxID || !idPattern.MatchString(id) {
		return sandbox.Errorf(sandbox.Invalid, "pack_id: %.80q: use 1 to %d of the characters a-z 0-9 -, beginning with a letter, and no two - together", id, maxID)
	}
	if id == "keys" { // a route of the API
		return sandbox.Errorf(sandbox.Invalid, "pack_id: %q is taken by the server itself", id)
	}
	if id == "plugin" || strings.HasPrefix(id, "plugin-") {
		return sandbox.Errorf(sandbox.Invalid, "pack_id: %.80q: names that begin with plugin belong to plugins", id)
	}
	return nil
}

// Bytes is about what it takes in memory.
func (m *Manifest) Bytes() int { return len(m.List) + len(m.Config) + len(m.Description) }

// Same reports whether two manifests offer the same tools on the same terms.
func (m *Manifest) Same(o *Manifest) bool {
	return o != nil && bytes.Equal(m.List, o.List) && bytes.Equal(m.Config, o.Config)
}

// Check reads a manifest. allowed are the only capabilities that its tools may require; nil: any. An error is Invalid.
func Check(p *packsv1.PackManifest, allowed []string) (*Manifest, error) {
	if p == nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "manifest: is missing")
	}
	m := &Manifest{ID: p.GetPackId(), Version: p.GetVersion(), Description: p.GetDescription(), Parallel: int(p.GetMaxParallelCalls())}
	if err := CheckID(m.ID); err != nil {
		return nil, err
	}
	if m.Parallel == 0 {
		m.Parallel = defParallel
	}
	switch {
	case !printable(m.Version) || len(m.Version) > maxVersion:
		return nil, sandbox.Errorf(sandbox.Invalid, "version: use at most %d printable characters", maxVersion)
	case !utf8.ValidString(m.Description) || len(m.Description) > maxDescription:
		return nil, sandbox.Errorf(sandbox.Invalid, "description: has %d bytes; use at most %d", len(m.Description), maxDescription)
	case m.Parallel < 0 || m.Parallel > maxParallel:
		return nil, sandbox.Errorf(sandbox.Invalid, "max_parallel_calls: %d is not 1 to %d", m.Parallel, maxParallel)
	case len(p.GetTools()) > MaxTools:
		return nil, sandbox.Errorf(sandbox.Invalid, "tools: a pack has at most %d, and this one has %d", MaxTools, len(p.GetTools()))
	}
	c := checker{allowed: allowed, at: map[string]int{}}
	for i, t := range p.GetTools() {
		if err := c.add(i, t); err != nil {
			return nil, err
		}
	}
	m.Tools = c.tools
	return m, c.write(m)
}

// checker checks the tools of a manifest one after another.
type checker struct {
	allowed []string
	at      map[string]int // names, with their places
	bytes   int
	tools   []sandbox.PackTool
	listed  []listed
}

// listed is a tool as MCP lists it.
type listed struct {
	Name         string          `json:"name"`
	Title        string          `json:"title,omitempty"`
	Description  string          `json:"description,omitempty"`
	InputSchema  json.RawMessage `json:"inputSchema"`
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
	Annotations  json.RawMessage `json:"annotations,omitempty"`
}

// wrong names the tool and the place.
func wrong(i int, name, place, format string, args ...any) error {
	return sandbox.Errorf(sandbox.Invalid, "tools[%d] %.80q: %s: %s", i, name, place, fmt.Sprintf(format, args...))
}

func (c *checker) add(i int, p *packsv1.ToolDefinition) error {
	name := p.GetName()
	switch first, taken := c.at[name]; {
	case !toolPattern.MatchString(name):
		return wrong(i, name, "name", "use 1 to 64 of the characters A-Z a-z 0-9 _ . -")
	case taken:
		return wrong(i, name, "name", "tools[%d] has it, too", first)
	case !utf8.ValidString(p.GetDescription()) || len(p.GetDescription()) > maxDescription:
		return wrong(i, name, "description", "has %d bytes; use at most %d of UTF-8", len(p.GetDescription()), maxDescription)
	case !printable(p.GetTitle()) || len(p.GetTitle()) > maxTitle:
		return wrong(i, name, "title", "use at most %d printable characters", maxTitle)
	case p.GetTimeoutSeconds() < 0 || p.GetTimeoutSeconds() > maxTimeout:
		return wrong(i, name, "timeout_seconds", "%d is not 1 to %d", p.GetTimeoutSeconds(), maxTimeout)
	}
	c.at[name] = i
	t := sandbox.PackTool{Name: name, Description: p.GetDescription(), TimeoutSeconds: int(p.GetTimeoutSeconds()), Disclosure: p.GetDisclosure()}
	if t.TimeoutSeconds == 0 {
		t.TimeoutSeconds = defTimeout
	}
	switch sandbox.Disclosure(t.Disclosure) {
	case "", sandbox.DiscloseAlways, sandbox.DiscloseDeferred, sandbox.DiscloseHidden:
	default:
		return wrong(i, name, "disclosure", "%.40q is not always, deferred or hidden", t.Disclosure)
	}
	var err error
	if t.Capabilities, err = sandbox.CheckCapabilities(p.GetRequiredCapabilities()); err != nil {
		return wrong(i, name, "required_capabilities", "%v", err)
	}
	for _, capability := range t.Capabilities {
		if c.allowed != nil && !slices.Contains(c.allowed, capability) {
			return wrong(i, name, "required_capabilities", "the pack's credential does not let its tools require %q", capability)
		}
	}
	l := listed{Name: name, Title: p.GetTitle(), Description: t.Description}
	if l.InputSchema, err = input(p.GetInputSchemaJson()); err != nil {
		return wrong(i, name, "input_schema_json", "%v", err)
	}
	if text := p.GetOutputSchemaJson(); text != "" {
		if l.OutputSchema, err = compile(text, schema.Result); err != nil {
			return wrong(i, name, "output_schema_json", "%v", err)
		}
	}
	if l.Annotations, err = annotations(p.GetAnnotationsJson()); err != nil {
		return wrong(i, name, "annotations_json", "%v", err)
	}
	c.bytes += len(l.Title) + len(l.Description) + len(l.InputSchema) + len(l.OutputSchema) + len(l.Annotations)
	if c.bytes > MaxBytes {
		return wrong(i, name, "description", "the descriptions and schemas up to this tool have more than %d bytes", MaxBytes)
	}
	c.tools, c.listed = append(c.tools, t), append(c.listed, l)
	return nil
}

// input returns an input schema. MCP wants it to be of an object.
func input(text string) (json.RawMessage, error) {
	if text == "" {
		return json.RawMessage(`{"type":"object"}`), nil
	}
	raw, err := compile(text, schema.Input)
	if err != nil {
		return nil, err
	}
	var top struct {
		Type json.RawMessage `json:"type"`
	}
	if err := json.Unmarshal(raw, &top); err != nil || string(top.Type) != `"object"` {
		return nil, fmt.Errorf(`/type: the arguments of a tool are an object, so it has to be "object"`)
	}
	return raw, nil
}

// compile checks a schema, and compacts it.
func compile(text, root string) (json.RawMessage, error) {
	raw, err := object(text, maxSchema)
	if err != nil {
		return nil, err
	}
	if schema.TooDeep(raw) {
		return nil, fmt.Errorf("it is nested too deeply")
	}
	if err := schema.New(raw, root).Problem(); err != nil {
		return nil, err
	}
	return raw, nil
}

// annotations returns annotations of MCP; nil for none.
func annotations(text string) (json.RawMessage, error) {
	if text == "" {
		return nil, nil
	}
	return object(text, maxAnnotations)
}

// object returns a JSON object of limited size, compacted.
func object(text string, limit int) (json.RawMessage, error) {
	if len(text) > limit {
		return nil, fmt.Errorf("has %d bytes; use at most %d", len(text), limit)
	}
	var b bytes.Buffer
	if !utf8.ValidString(text) || json.Compact(&b, []byte(text)) != nil || b.Bytes()[0] != '{' {
		return nil, fmt.Errorf("is not a JSON object")
	}
	return b.Bytes(), nil
}

// write puts the checked tools into the words of the hub.
func (c *checker) write(m *Manifest) error {
	type terms struct {
		Timeout      int      `json:"timeout"` // milliseconds
		Disclosure   string   `json:"disclosure,omitempty"`
		Capabilities []string `json:"capabilities,omitempty"`
	}
	config := struct {
		Description string           `json:"description,omitempty"`
		Concurrency int              `json:"concurrency"`
		Tools       map[string]terms `json:"tools"`
	}{m.Description, m.Parallel, map[string]terms{}}
	for _, t := range c.tools {
		config.Tools[t.Name] = terms{t.TimeoutSeconds * 1000, t.Disclosure, t.Capabilities}
	}
	list := struct {
		Tools []listed `json:"tools"`
	}{c.listed}
	if list.Tools == nil {
		list.Tools = []listed{}
	}
	var err error
	if m.List, err = json.Marshal(list); err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the manifest cannot be written")
	}
	if m.Config, err = json.Marshal(config); err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the manifest cannot be written")
	}
	m.Digest, err = digest(m)
	return err
}

// digest names what a manifest says.
func digest(m *Manifest) (string, error) {
	plain := *m
	plain.Digest = ""
	text, err := json.Marshal(plain)
	if err != nil {
		return "", sandbox.Wrap(sandbox.Internal, err, "the manifest cannot be written")
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// Read reads a checked manifest that another server has written as JSON. An error is Invalid.
func Read(text []byte) (*Manifest, error) {
	m := &Manifest{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "the manifest of another server cannot be read")
	}
	if sum, err := digest(m); err != nil || sum != m.Digest || m.Parallel < 1 || m.Parallel > maxParallel {
		return nil, sandbox.Errorf(sandbox.Invalid, "the manifest of another server is not what its digest says")
	}
	return m, nil
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}
