package rest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/skerry-sandbox/skerry/internal/api/rest/problem"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

var update = flag.Bool("update", false, "write the pages of docs/api and the models of the clients anew")

// TestReference: the pages of docs/api are what the OpenAPI document makes, with the examples of docs/api/examples.json,
// which TestExamples of internal/e2e sends to a server.
func TestReference(t *testing.T) {
	t.Parallel()
	raw := send(handler(t, newWorld(t)), "GET", "/openapi.json", "").Body.Bytes()
	r := &reference{t: t, home: map[string]string{}}
	if err := json.Unmarshal(raw, &r.doc); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../../docs/api/examples.json")
	if err == nil {
		err = json.Unmarshal(text, &r.examples)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.checkExamples(raw)
	pages := r.pages()
	there, err := filepath.Glob("../../../docs/api/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range there {
		if pages[filepath.Base(file)] == "" {
			t.Errorf("%s is made of nothing any more: remove it", file)
		}
	}
	for name, page := range pages {
		file := filepath.Join("../../../docs/api", name)
		if *update {
			if err := os.WriteFile(file, []byte(page), 0o644); err != nil { //nolint:gosec // documents are for everybody
				t.Fatal(err)
			}
		}
		if have, err := os.ReadFile(file); err != nil || string(have) != page {
			t.Errorf("docs/api/%s is not what the API is (%v): run scripts/generate.sh", name, err)
		}
	}
}

// reference writes the pages. home says on which page a named shape is.
type reference struct {
	t        *testing.T
	doc      apiDoc
	examples []example
	home     map[string]string
}

type apiDoc struct {
	Info       struct{ Description string }
	Tags       []struct{ Name, Description string }
	Paths      map[string]map[string]apiOperation
	Components struct{ Schemas map[string]apiSchema }
}

type apiOperation struct {
	OperationID, Summary, Description string
	Tags                              []string
	Parameters                        []apiParameter
	RequestBody                       *struct {
		Required bool
		Content  map[string]apiMedia
	}
	Responses map[string]struct {
		Description string
		Content     map[string]apiMedia
	}
	Roles    []string `json:"x-skerry-roles"`
	Operator bool     `json:"x-skerry-operator"`

	verb, path string
}

type apiParameter struct {
	Name, In, Description string
	Required              bool
	Schema                apiSchema
}

type apiMedia struct{ Schema apiSchema }

type apiSchema struct {
	Ref                  string `json:"$ref"`
	Type                 any
	Description, Format  string
	Pattern              string
	Enum                 []any
	Default              any
	Minimum, Maximum     *float64
	MinLength, MaxLength *int
	MinItems, MaxItems   *int
	Items                *apiSchema
	Properties           map[string]apiSchema
	Required             []string
	AdditionalProperties json.RawMessage
	ContentEncoding      string
}

// example is a request that was sent to a server, with its answer.
type example struct {
	Operation, Path string
	Body            json.RawMessage `json:",omitempty"`
	Status          int
	Answer          json.RawMessage `json:",omitempty"`
}

// reference pages by tag.
var referencePages = map[string]string{
	route.TagThreads: "threads.md", route.TagRun: "running.md", route.TagFiles: "files.md", route.TagTools: "tools.md",
	route.TagSkills: "skills.md", route.TagAdmin: "administration.md", route.TagServer: "server.md",
}

var meanings = map[sandbox.Kind]string{
	sandbox.NotFound:         "there is no such thing, or it is another user's",
	sandbox.Invalid:          "the request cannot be right, whatever the state; `errors` names the fields",
	sandbox.Conflict:         "it would be right in another state",
	sandbox.Forbidden:        "the caller may not do this",
	sandbox.Unauthorized:     "no credential, or a bad one",
	sandbox.QuotaExceeded:    "too many or too large files: 413; another limit of a tenant, user or key: 429, with `limit` and Retry-After",
	sandbox.CapacityExceeded: "this server has no room now",
	sandbox.NotSupported:     "this driver, template or version cannot do it",
	sandbox.SandboxLost:      "the sandbox died under the call; the next call starts another one",
	sandbox.ToolFailed:       "the tool, or its MCP server, answered with an error",
	sandbox.Timeout:          "a deadline passed",
	sandbox.Unavailable:      "a part that is needed does not answer now",
	sandbox.Internal:         "a fault of the server; its log has the cause under `X-Request-Id`",
}

const referenceMark = "<!-- made by scripts/generate.sh of the OpenAPI document: change the code, not this page -->\n"

func (r *reference) pages() map[string]string {
	out := map[string]string{}
	byTag := map[string][]apiOperation{}
	for path, verbs := range r.doc.Paths {
		for verb, op := range verbs {
			op.verb, op.path = strings.ToUpper(verb), path
			byTag[op.Tags[0]] = append(byTag[op.Tags[0]], op)
		}
	}
	for _, ops := range byTag {
		order := []string{"GET", "HEAD", "PUT", "POST", "DELETE"}
		slices.SortFunc(ops, func(a, b apiOperation) int {
			return cmp.Or(strings.Compare(a.path, b.path), slices.Index(order, a.verb)-slices.Index(order, b.verb))
		})
	}
	r.home["Problem"], r.home["FieldError"], r.home["Limit"] = "README.md", "README.md", "README.md"
	shapes := map[string][]string{}
	for _, tag := range r.doc.Tags {
		page := referencePages[tag.Name]
		for _, op := range byTag[tag.Name] {
			shapes[page] = append(shapes[page], r.settle(op, page)...)
		}
		slices.Sort(shapes[page])
	}
	for _, tag := range r.doc.Tags {
		page := referencePages[tag.Name]
		if page == "" || len(byTag[tag.Name]) == 0 {
			r.t.Fatalf("the group %q has no page, or no routes", tag.Name)
		}
		out[page] = r.page(page, tag.Name, tag.Description, byTag[tag.Name], shapes[page])
	}
	out["README.md"] = r.index(byTag)
	return out
}

// settle places each shape that op needs, and that no page has, on page. The fields of a body stand with the route.
func (r *reference) settle(op apiOperation, page string) []string {
	var new []string
	var visit func(s apiSchema, shown bool)
	visit = func(s apiSchema, shown bool) {
		if name := refName(s); name != "" {
			if shown {
				if r.home[name] != "" {
					return
				}
				r.home[name] = page
				new = append(new, name)
			}
			s = r.doc.Components.Schemas[name]
		}
		if s.Items != nil {
			visit(*s.Items, true)
		}
		if inner, ok := mapOf(s); ok {
			visit(inner, true)
		}
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			visit(s.Properties[name], true)
		}
	}
	if op.RequestBody != nil {
		for _, m := range op.RequestBody.Content {
			visit(m.Schema, false)
		}
	}
	for _, answer := range op.Responses {
		for _, m := range answer.Content {
			visit(m.Schema, true)
		}
	}
	return new
}

func (r *reference) page(page, title, about string, ops []apiOperation, shapes []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n%s What all routes have in common, and errors: [API](README.md).\n\n| route | what it does |\n|---|---|\n", title, referenceMark, about)
	for _, op := range ops {
		fmt.Fprintf(&b, "| %s | %s |\n", op.link(""), cell(op.Summary))
	}
	for _, op := range ops {
		r.operation(&b, page, op)
	}
	if len(shapes) > 0 {
		b.WriteString("\n## Shapes\n\nFields that are not always there have a `?`.\n")
	}
	for _, name := range shapes {
		s := r.doc.Components.Schemas[name]
		fmt.Fprintf(&b, "\n### %s\n\n", name)
		if s.Description != "" {
			b.WriteString(cell(s.Description) + "\n\n")
		}
		r.fields(&b, page, s)
	}
	return b.String()
}

func (op apiOperation) name() string { return op.verb + " " + op.path }

func (op apiOperation) link(page string) string {
	id := strings.NewReplacer("/", "", "{", "", "}", "", " ", "-").Replace(strings.ToLower(op.name()))
	return fmt.Sprintf("[`%s`](%s#%s)", op.name(), page, id)
}

func (op apiOperation) callers() string {
	switch {
	case len(op.Roles) == 0 || slices.Contains(op.Roles, "anyone"):
		return "anyone, without a credential"
	case op.Operator:
		return strings.Join(op.Roles, ", ") + " of the operators' tenant"
	}
	return strings.Join(op.Roles, ", ")
}

func (r *reference) operation(b *strings.Builder, page string, op apiOperation) {
	fmt.Fprintf(b, "\n## %s\n\n%s.", op.name(), strings.TrimSuffix(op.Summary, "."))
	if op.Description != "" {
		b.WriteString(" " + op.Description)
	}
	fmt.Fprintf(b, "\n\nWho: %s. Id: `%s`.\n", op.callers(), op.OperationID)
	// Nearly every route has a thread: the index says once what that is.
	op.Parameters = slices.DeleteFunc(op.Parameters, func(p apiParameter) bool { return p.In == "path" && p.Name == "thread" })
	if len(op.Parameters) > 0 {
		b.WriteString("\n| parameter | in | type | meaning |\n|---|---|---|---|\n")
	}
	for _, p := range op.Parameters {
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", p.Name+optional(p.Required), p.In, r.typ(page, p.Schema), meaning(p.Schema, p.Description))
	}
	if op.RequestBody != nil {
		for _, media := range slices.Sorted(maps.Keys(op.RequestBody.Content)) {
			fmt.Fprintf(b, "\nBody, `%s`%s:\n\n", media, map[bool]string{true: "", false: ", may be left out"}[op.RequestBody.Required])
			s := op.RequestBody.Content[media].Schema
			if name := refName(s); name != "" {
				s = r.doc.Components.Schemas[name]
			}
			r.fields(b, page, s)
		}
	}
	b.WriteString("\n| answer | type | body |\n|---|---|---|\n")
	for _, status := range slices.Sorted(maps.Keys(op.Responses)) {
		answer := op.Responses[status]
		if status == "default" {
			fmt.Fprintf(b, "| an error | `%s` | %s |\n", problem.ContentType, r.named(page, "Problem"))
			continue
		}
		if len(answer.Content) == 0 {
			fmt.Fprintf(b, "| `%s` | | %s |\n", status, cell(answer.Description))
		}
		for _, media := range slices.Sorted(maps.Keys(answer.Content)) {
			s := answer.Content[media].Schema
			fmt.Fprintf(b, "| `%s` | `%s` | %s |\n", status, media, strings.TrimSpace(r.typ(page, s)+" "+cell(s.Description)))
		}
	}
	for _, e := range r.examples {
		if e.Operation == op.OperationID {
			b.WriteString(e.text(op.verb))
		}
	}
}

// text shows an example as a command and its answer.
func (e example) text(verb string) string {
	var b strings.Builder
	b.WriteString("\n```sh\ncurl -s")
	if verb != "GET" && (verb != "POST" || e.Body == nil) {
		b.WriteString(" -X " + verb)
	}
	fmt.Fprintf(&b, " \"$SKERRY%s\"", e.Path)
	if e.Body != nil {
		fmt.Fprintf(&b, " -H 'Content-Type: application/json' \\\n  -d '%s'", strings.ReplaceAll(compact(e.Body), "'", `'\''`))
	}
	b.WriteString("\n```\n")
	var plain string
	switch {
	case e.Answer == nil:
		fmt.Fprintf(&b, "\n%d, without a body.\n", e.Status)
	case json.Unmarshal(e.Answer, &plain) == nil:
		fmt.Fprintf(&b, "\n%d:\n\n```\n%s\n```\n", e.Status, strings.TrimRight(plain, "\n"))
	default:
		var out bytes.Buffer
		_ = json.Indent(&out, e.Answer, "", "  ")
		fmt.Fprintf(&b, "\n%d:\n\n```json\n%s\n```\n", e.Status, out.String())
	}
	return b.String()
}

func compact(raw json.RawMessage) string {
	var out bytes.Buffer
	_ = json.Compact(&out, raw)
	return out.String()
}

func (r *reference) fields(b *strings.Builder, page string, s apiSchema) {
	if len(s.Properties) == 0 {
		fmt.Fprintf(b, "%s\n", cmp.Or(r.typ(page, s), "bytes"))
		return
	}
	b.WriteString("| field | type | meaning |\n|---|---|---|\n")
	names := slices.Sorted(maps.Keys(s.Properties))
	slices.SortStableFunc(names, func(x, y string) int {
		return len(optional(slices.Contains(s.Required, x))) - len(optional(slices.Contains(s.Required, y)))
	})
	for _, name := range names {
		p := s.Properties[name]
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", name+optional(slices.Contains(s.Required, name)), r.typ(page, p), meaning(p, p.Description))
	}
}

func optional(required bool) string {
	if required {
		return ""
	}
	return "?"
}

func refName(s apiSchema) string { return strings.TrimPrefix(s.Ref, "#/components/schemas/") }

// mapOf is the type of the values of an object whose fields have any names.
func mapOf(s apiSchema) (apiSchema, bool) {
	var inner apiSchema
	if !bytes.HasPrefix(bytes.TrimSpace(s.AdditionalProperties), []byte("{")) || json.Unmarshal(s.AdditionalProperties, &inner) != nil {
		return inner, false
	}
	return inner, true
}

func (r *reference) named(page, name string) string {
	home := r.home[name]
	if home == "" {
		r.t.Fatalf("the shape %s is on no page", name)
	}
	if home == page {
		home = ""
	}
	return fmt.Sprintf("[%s](%s#%s)", name, home, strings.ToLower(name))
}

func (r *reference) typ(page string, s apiSchema) string {
	if name := refName(s); name != "" {
		return r.named(page, name)
	}
	if s.Items != nil {
		return "list of " + r.typ(page, *s.Items)
	}
	if inner, ok := mapOf(s); ok {
		return strings.TrimSpace("map of " + r.typ(page, inner))
	}
	var kind string
	switch t := s.Type.(type) {
	case string:
		kind = t
	case []any:
		kind = strings.Trim(fmt.Sprint(t), "[]")
	}
	switch {
	case kind == "" && len(s.Properties) == 0:
		kind = "any JSON"
	case s.Format == "date-time":
		kind = "time"
	case s.Format == "binary" || s.ContentEncoding == "base64":
		kind = "base64"
		if s.Format == "binary" {
			kind = "bytes"
		}
	}
	return kind
}

// meaning is the text of a field with the values that it may have.
func meaning(s apiSchema, description string) string {
	parts := []string{}
	if description != "" {
		parts = append(parts, cell(description))
	}
	if s.Items != nil && s.Enum == nil {
		s.Enum = s.Items.Enum
	}
	if len(s.Enum) > 0 {
		var values []string
		for _, v := range s.Enum {
			values = append(values, fmt.Sprintf("`%v`", v))
		}
		parts = append(parts, strings.Join(values, ", "))
	}
	bound := func(what string, low, high any) {
		switch {
		case low != nil && high != nil:
			parts = append(parts, fmt.Sprintf("%v to %v%s", low, high, what))
		case low == any(int64(1)) && what != "":
			parts = append(parts, "not empty")
		case low != nil:
			parts = append(parts, fmt.Sprintf("at least %v%s", low, what))
		case high != nil:
			parts = append(parts, fmt.Sprintf("at most %v%s", high, what))
		}
	}
	bound("", number(s.Minimum), number(s.Maximum))
	bound(" characters", number(s.MinLength), number(s.MaxLength))
	bound(" entries", number(s.MinItems), number(s.MaxItems))
	if s.Pattern != "" {
		parts = append(parts, "`"+cell(s.Pattern)+"`")
	}
	if s.Default != nil {
		parts = append(parts, fmt.Sprintf("default `%v`", s.Default))
	}
	return strings.Join(parts, "; ")
}

func number[N int | float64](n *N) any {
	if n == nil {
		return nil
	}
	return int64(*n)
}

// cell is text as it may stand in a table.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;", "*", `\*`).Replace(s)
}

func (r *reference) index(byTag map[string][]apiOperation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# API\n\n%s\n", referenceMark)
	b.WriteString("Everything that Skerry does, it does by HTTP and JSON. A server shows the same at `/docs` and, for programs, at `/openapi.json` (OpenAPI 3.1). ")
	b.WriteString("Clients: [Python](../python.md), [TypeScript](../typescript.md), [Go](../go.md). `/mcp` speaks MCP: [clients](../mcp-clients.md).\n\n")
	b.WriteString("The tests send the examples to a server and compare its answers with what stands here, but for ids, hashes, times and numbers. `SKERRY` is the server's address:\n\n")
	b.WriteString("```sh\nSKERRY=http://localhost:8080\n```\n\n## What all routes have in common\n\n")
	b.WriteString("A key goes into `Authorization: Bearer sk_…` or `X-API-Key: sk_…`; a server on loopback without keys wants none. Who may call a route stands with it, by [role](../identity.md#roles).\n")
	_, rules, _ := strings.Cut(r.doc.Info.Description, ". ") // behind what Skerry is
	for _, sentence := range strings.SplitAfter(rules, ". ") {
		fmt.Fprintf(&b, "%s\n", strings.TrimSpace(sentence))
	}
	b.WriteString("`{thread}` is your name of a conversation: 1 to 128 of `A-Z a-z 0-9 _ -`. What belongs to another user is not found.\n")
	b.WriteString("A list has `items` and, when there is more, `next_cursor`: send it as `cursor`.\n\n## Routes\n")
	for _, tag := range r.doc.Tags {
		page := referencePages[tag.Name]
		fmt.Fprintf(&b, "\n### [%s](%s)\n\n%s\n\n| route | what it does | who |\n|---|---|---|\n", tag.Name, page, tag.Description)
		for _, op := range byTag[tag.Name] {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", op.link(page), cell(op.Summary), op.callers())
		}
	}
	b.WriteString("\n## Errors\n\nAny route may answer with any of them. Go by `code`, which stays; texts may change.\n\n| code | status | Retry-After, s | meaning |\n|---|---|---|---|\n")
	for _, kind := range problem.Kinds() {
		if meanings[kind] == "" {
			r.t.Fatalf("what does %s mean?", kind)
		}
		fmt.Fprintf(&b, "| `%s` | %d | %s | %s |\n", kind, kind.HTTPStatus(), problem.New(kind, "").GetHeaders().Get("Retry-After"), meanings[kind])
	}
	for _, e := range r.examples {
		if e.Operation == "error" {
			b.WriteString(e.text("GET"))
		}
	}
	for _, name := range []string{"Problem", "FieldError", "Limit"} {
		fmt.Fprintf(&b, "\n### %s\n\n", name)
		r.fields(&b, "README.md", r.doc.Components.Schemas[name])
	}
	return b.String()
}

// checkExamples: each is of a route, and its bodies fit their schemas.
func (r *reference) checkExamples(document []byte) {
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		r.t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("urn:openapi", parsed); err != nil {
		r.t.Fatal(err)
	}
	fits := func(what string, s apiSchema, raw json.RawMessage) {
		schema, err := c.Compile("urn:openapi" + s.Ref)
		if err != nil {
			r.t.Fatal(err)
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err == nil {
			err = schema.Validate(value)
		}
		if err != nil {
			r.t.Errorf("%s: %v", what, err)
		}
	}
	ops := map[string]apiOperation{"error": {}}
	for _, verbs := range r.doc.Paths {
		for _, op := range verbs {
			ops[op.OperationID] = op
		}
	}
	for _, e := range r.examples {
		op, ok := ops[e.Operation]
		if !ok {
			r.t.Errorf("the example %s is of no route", e.Operation)
			continue
		}
		if e.Operation == "error" {
			fits("error", apiSchema{Ref: "#/components/schemas/Problem"}, e.Answer)
			continue
		}
		if e.Body != nil && op.RequestBody != nil {
			fits(e.Operation+": body", op.RequestBody.Content["application/json"].Schema, e.Body)
		}
		if s := op.Responses[fmt.Sprint(e.Status)].Content["application/json"].Schema; s.Ref != "" {
			fits(e.Operation+": answer", s, e.Answer)
		}
	}
}
