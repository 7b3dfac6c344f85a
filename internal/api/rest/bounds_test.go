package rest

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// boundSchema is what the test reads of a schema of the document.
type boundSchema struct {
	Ref                string `json:"$ref"`
	Type               any
	Enum               []any
	Pattern            string
	Minimum, Maximum   *float64
	MinLength          *int
	MinItems, MaxItems *int
	Items              *boundSchema
	Properties         map[string]*boundSchema
	Required           []string
}

type boundDoc struct {
	Paths map[string]map[string]struct {
		OperationID string
		Parameters  []struct {
			Name, In string
			Required bool
			Schema   boundSchema
		}
		RequestBody *struct {
			Content map[string]struct{ Schema boundSchema }
		}
		Responses map[string]struct{ Content map[string]any }
	}
	Components struct{ Schemas map[string]*boundSchema }
}

func (d *boundDoc) of(s *boundSchema) *boundSchema {
	for s.Ref != "" {
		s = d.Components.Schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")]
	}
	return s
}

// sample is a value that a schema takes.
func (d *boundDoc) sample(s *boundSchema) any {
	s = d.of(s)
	kind, _ := s.Type.(string)
	if list, ok := s.Type.([]any); ok {
		kind, _ = list[0].(string)
	}
	switch {
	case len(s.Enum) > 0:
		return s.Enum[0]
	case kind == "string":
		return "aaaaaaaa"
	case kind == "integer", kind == "number":
		return 1
	case kind == "boolean":
		return true
	case kind == "array":
		return []any{d.sample(s.Items)}
	}
	all := map[string]any{}
	for _, name := range s.Required {
		all[name] = d.sample(s.Properties[name])
	}
	return all
}

// lengths are those of a pattern that bounds its text.
var lengths = regexp.MustCompile(`\{\d+,(\d+)\}\$$`)

// longest is the longest text that a pattern takes.
func longest(pattern string) string {
	m := lengths.FindStringSubmatch(pattern)
	if m == nil {
		return ""
	}
	n, _ := strconv.Atoi(m[1])
	for _, c := range []string{"a", "1"} {
		if text := strings.Repeat(c, n); regexp.MustCompile(pattern).MatchString(text) {
			return text
		}
	}
	return ""
}

// noInstalls installs nothing.
type noInstalls struct{}

func (noInstalls) Install(context.Context, sandbox.Caller, io.Reader, sandbox.SkillInstall) (sandbox.SkillInstalled, error) {
	return sandbox.SkillInstalled{}, nil
}

func (noInstalls) InstallListed(context.Context, sandbox.Caller, sandbox.SkillInstall) (sandbox.SkillInstalled, error) {
	return sandbox.SkillInstalled{}, nil
}

func (noInstalls) InstallURL(context.Context, sandbox.Caller, sandbox.SkillInstall) (sandbox.SkillInstalled, error) {
	return sandbox.SkillInstalled{}, nil
}

// TestBoundsOfPatterns: the longest text that a pattern of the document takes is not refused for its length, and one
// character more is, wherever the field is: in the path, the query, a header or the body. So are words that an enum
// does not have, lists that are too short, and numbers of objects within the body. TestBounds of internal/e2e tries the other bounds.
func TestBoundsOfPatterns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := &fakePlugins{}
	h := handler(t, w, func(o *Options) { o.Plugins, o.Marketplaces, o.SkillInstalls = f, f, noInstalls{} })
	var doc boundDoc
	if err := json.Unmarshal(send(h, "GET", "/openapi.json", "").Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for method, op := range doc.Paths[path] {
			var body *boundSchema
			if op.RequestBody != nil {
				if c, ok := op.RequestBody.Content["application/json"]; ok {
					body = doc.of(&c.Schema)
				}
			}
			_, plain := op.Responses["200"].Content["application/json"]
			// ask sends a request in which all that is required has a sample, and one field the value.
			ask := func(in, field string, value any) string {
				url, query, text, headers := path, "", "", []string(nil)
				for _, p := range op.Parameters {
					v, given := doc.sample(&p.Schema), p.In == in && p.Name == field
					if given {
						v = value
					}
					said, _ := v.(string)
					switch {
					case p.In == "path":
						url = strings.ReplaceAll(url, "{"+p.Name+"}", said)
					case p.In == "query" && (given || p.Required):
						query += "&" + p.Name + "=" + said
					case p.In == "header" && given:
						headers = append(headers, p.Name+": "+said)
					}
				}
				if body != nil {
					all, _ := doc.sample(body).(map[string]any)
					if outer, inner, nested := strings.Cut(field, "."); in == "body" && nested {
						one, _ := doc.sample(body.Properties[outer]).(map[string]any)
						one[inner] = value
						all[outer] = one
					} else if in == "body" {
						all[field] = value
					}
					raw, err := json.Marshal(all)
					if err != nil {
						t.Fatal(err)
					}
					text = string(raw)
				}
				rec := send(h, strings.ToUpper(method), url+"?"+strings.TrimPrefix(query, "&"), text, headers...)
				var p struct {
					Errors []struct{ Field, Detail string }
				}
				if rec.Code != http.StatusBadRequest || json.Unmarshal(rec.Body.Bytes(), &p) != nil {
					return ""
				}
				for _, e := range p.Errors {
					if strings.EqualFold(e.Field, field) {
						return e.Detail
					}
				}
				return ""
			}
			try := func(in, field string, at, out any) {
				tried++
				refused := ask(in, field, out)
				if refused == "" {
					t.Errorf("%s: %s %s beyond its bound is not refused", op.OperationID, in, field)
				}
				if at != nil && plain && ask(in, field, at) == refused {
					t.Errorf("%s: %s %s at its bound is refused: %s", op.OperationID, in, field, refused)
				}
			}
			inBody := func(field string, s *boundSchema) {
				s = doc.of(s)
				if text := longest(s.Pattern); text != "" {
					try("body", field, text, text+text[:1])
				}
				if len(s.Enum) > 0 {
					try("body", field, s.Enum[0], "none of them")
				}
				if s.MinItems != nil && *s.MinItems > 0 {
					try("body", field, []any{doc.sample(s.Items)}, []any{})
				}
				for name, inner := range s.Properties {
					if inner.Minimum != nil && inner.Maximum != nil {
						try("body", field+"."+name, *inner.Maximum, *inner.Maximum+1)
						try("body", field+"."+name, *inner.Minimum, *inner.Minimum-1)
					}
				}
			}
			for _, p := range op.Parameters {
				if text := longest(p.Schema.Pattern); text != "" {
					try(p.In, p.Name, text, text+text[:1])
				}
				if len(p.Schema.Enum) > 0 {
					try(p.In, p.Name, p.Schema.Enum[0], "none")
				}
			}
			if body != nil {
				for name, s := range body.Properties {
					inBody(name, s)
				}
			}
		}
	}
	t.Logf("%d bounds", tried)
	if tried < 60 {
		t.Errorf("only %d bounds in the document", tried)
	}
}
