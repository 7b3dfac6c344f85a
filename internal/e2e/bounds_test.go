package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// schema is what the test reads of a schema of the document.
type schema struct {
	Ref        string             `json:"$ref"`
	Type       any                `json:"type"`
	Enum       []any              `json:"enum"`
	Pattern    string             `json:"pattern"`
	Minimum    *float64           `json:"minimum"`
	Maximum    *float64           `json:"maximum"`
	MinLength  *int               `json:"minLength"`
	MaxLength  *int               `json:"maxLength"`
	MaxItems   *int               `json:"maxItems"`
	Items      *schema            `json:"items"`
	Properties map[string]*schema `json:"properties"`
	Required   []string           `json:"required"`
}

// bounded is a route of the document with its bounds.
type bounded struct {
	OperationID string `json:"operationId"`
	Parameters  []struct {
		Name     string
		In       string
		Required bool
		Schema   schema
	}
	RequestBody *struct {
		Content map[string]struct{ Schema schema }
	}
	Responses map[string]struct{ Content map[string]any }
}

// bounds is the document.
type bounds struct {
	Paths      map[string]map[string]bounded
	Components struct{ Schemas map[string]*schema }
}

func (d *bounds) of(s *schema) *schema {
	for s.Ref != "" {
		s = d.Components.Schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")]
	}
	return s
}

// kind is the first type of a schema that is not null.
func (s *schema) kind() string {
	switch v := s.Type.(type) {
	case string:
		return v
	case []any:
		for _, one := range v {
			if one != "null" {
				return fmt.Sprint(one)
			}
		}
	}
	return ""
}

// sample is a value that a schema takes.
func (d *bounds) sample(s *schema) any {
	s = d.of(s)
	if len(s.Enum) > 0 {
		return s.Enum[0]
	}
	switch s.kind() {
	case "string":
		return strings.Repeat("a", max(1, *cmp.Or(s.MinLength, new(int))))
	case "integer", "number":
		return max(1, *cmp.Or(s.Minimum, new(float64)))
	case "boolean":
		return true
	case "array":
		return []any{}
	}
	return d.object(s)
}

// object has what is required of a schema's properties.
func (d *bounds) object(s *schema) map[string]any {
	all := map[string]any{}
	for _, name := range s.Required {
		all[name] = d.sample(s.Properties[name])
	}
	return all
}

// edge is a value at a bound, and another beyond it.
type edge struct {
	bound   string
	at, out any
}

// edges are those of a schema.
func (d *bounds) edges(s *schema) (all []edge) {
	s = d.of(s)
	text := func(n int) string { return strings.Repeat("a", n) }
	if s.Maximum != nil {
		all = append(all, edge{"maximum", *s.Maximum, *s.Maximum + 1})
	}
	if s.Minimum != nil {
		all = append(all, edge{"minimum", *s.Minimum, *s.Minimum - 1})
	}
	if s.Pattern != "" && !regexp.MustCompile(s.Pattern).MatchString("a") || len(s.Enum) > 0 {
		return all
	}
	if s.MaxLength != nil && (s.Pattern == "" || regexp.MustCompile(s.Pattern).MatchString(text(*s.MaxLength))) {
		all = append(all, edge{"maxLength", text(*s.MaxLength), text(*s.MaxLength + 1)})
	}
	if s.MinLength != nil && *s.MinLength > 0 {
		all = append(all, edge{"minLength", text(*s.MinLength), text(*s.MinLength - 1)})
	}
	if s.MaxItems != nil {
		list := func(n int) []any {
			all := make([]any, n)
			for i := range all {
				all[i] = d.sample(s.Items)
			}
			return all
		}
		all = append(all, edge{"maxItems", list(*s.MaxItems), list(*s.MaxItems + 1)})
	}
	return all
}

// TestBounds: each bound of the document is in force. The value at a bound is not refused for being that, and one more is, by
// the name of its field.
func TestBounds(t *testing.T) {
	t.Parallel()
	s := start(t, options{})
	var made struct{ Secret string }
	s.do("POST", "/api/keys", map[string]any{"name": "bounds", "user": "root", "admin": true}).into(t, &made) // a later one would need it
	s.key = made.Secret
	var doc bounds
	s.do("GET", "/openapi.json", nil).into(t, &doc)
	tried := 0
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for method, op := range doc.Paths[path] {
			if _, ok := op.Responses["200"].Content["application/json"]; op.Responses["200"].Content != nil && !ok {
				continue // a stream that has no end
			}
			var body *schema
			if op.RequestBody != nil {
				if c, ok := op.RequestBody.Content["application/json"]; ok {
					body = doc.of(&c.Schema)
				}
			}
			send := func(field string, value any) answer {
				return s.bounded(t, &doc, strings.ToUpper(method), path, op, body, field, value)
			}
			try := func(in, field string, of *schema) {
				for _, e := range doc.edges(of) {
					tried++
					at, out := send(in+"."+field, e.at), send(in+"."+field, e.out)
					if out.refusal(field) == "" {
						t.Errorf("%s: %s beyond %s is not refused: %d %.300s", op.OperationID, field, e.bound, out.status, out.body)
					} else if at.refusal(field) == out.refusal(field) { // it may be refused for another reason
						t.Errorf("%s: %s %s is refused: %d %.300s", op.OperationID, field, e.bound, at.status, at.body)
					}
				}
			}
			for _, p := range op.Parameters {
				if p.In == "query" {
					try(p.In, p.Name, &p.Schema)
				}
			}
			if body != nil {
				for _, name := range slices.Sorted(maps.Keys(body.Properties)) {
					try("body", name, body.Properties[name])
				}
			}
		}
	}
	if tried < 80 {
		t.Errorf("only %d bounds in the document", tried)
	}
}

// refusal is what an answer says of a field that cannot be what it is; "": nothing.
func (a answer) refusal(field string) string {
	var p struct {
		Errors []struct{ Field, Detail string }
	}
	if a.status != http.StatusBadRequest || json.Unmarshal(a.body, &p) != nil {
		return ""
	}
	for _, e := range p.Errors {
		if e.Field == field || strings.HasPrefix(e.Field, field+".") || strings.HasPrefix(e.Field, field+"[") {
			return e.Detail
		}
	}
	return ""
}

// bounded sends a request in which all that is required has a sample, and one field the value.
func (s *server) bounded(t *testing.T, doc *bounds, method, path string, op bounded, body *schema, field string, value any) answer {
	t.Helper()
	query := url.Values{}
	for _, p := range op.Parameters {
		switch {
		case p.In == "path" && p.Name == "thread":
			path = strings.ReplaceAll(path, "{thread}", "bounds")
		case p.In == "path":
			path = strings.ReplaceAll(path, "{"+p.Name+"}", fmt.Sprint(doc.sample(&p.Schema)))
		case p.In == "query" && field == "query."+p.Name:
			list, ok := value.([]any)
			if !ok {
				list = []any{value}
			}
			for _, one := range list {
				text := fmt.Sprint(one)
				if number, ok := one.(float64); ok { // Sprint writes a large one with an exponent
					text = strconv.FormatFloat(number, 'f', -1, 64)
				}
				query.Add(p.Name, text)
			}
		case p.In == "query" && p.Required:
			query.Set(p.Name, fmt.Sprint(doc.sample(&p.Schema)))
		}
	}
	var in any
	if body != nil {
		all := doc.object(body)
		if name, ok := strings.CutPrefix(field, "body."); ok {
			all[name] = value
		}
		in = all
	}
	a, err := s.request(method, path+"?"+query.Encode(), in)
	must(t, err)
	return a
}
