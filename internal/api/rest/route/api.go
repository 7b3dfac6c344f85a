package route

import (
	"context"
	"path"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/problem"
	"github.com/skerry-sandbox/skerry/internal/platform/jsonedit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// MaxJSONBytes bounds the body of a request, but for raw uploads.
const MaxJSONBytes = 32 << 20

// maxJSONValues bounds what the JSON of a request holds: the two bytes of a value take up to a hundred of memory.
const maxJSONValues = 250_000

// CheckJSON refuses a body that would take much more memory than it has bytes. It comes before the body is decoded.
func CheckJSON(body []byte) error {
	if jsonedit.Values(body) > maxJSONValues {
		return sandbox.Errorf(sandbox.Invalid, "the body has more than %d values", maxJSONValues)
	}
	return nil
}

// JSONFormat is how bodies are read and written.
func JSONFormat() huma.Format {
	f := huma.DefaultJSONFormat
	f.Unmarshal = func(body []byte, to any) error {
		if err := CheckJSON(body); err != nil {
			return err
		}
		return huma.DefaultJSONFormat.Unmarshal(body, to)
	}
	return f
}

// API is where routes are registered, each with its rule, its handler and its part of the OpenAPI document.
type API struct {
	table  *Table
	closed huma.API // routes that need a caller
	open   huma.API // routes that do not
}

// NewAPI returns an API without routes. Routes that need a caller belong to closed, the others to open.
func NewAPI(t *Table, closed, open huma.API) *API { return &API{t, closed, open} }

// OpenAPI is the document.
func (a *API) OpenAPI() *huma.OpenAPI { return a.closed.OpenAPI() }

// Schema returns the description of T in the document.
func Schema[T any](a *API, hint string) *huma.Schema {
	return a.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[T](), true, hint)
}

// Describe declares a route that huma does not serve, and describes it.
func (a *API) Describe(op huma.Operation) {
	r := RuleOf(op)
	a.table.Declare(op.Method, op.Path, r)
	op = r.gone.describe(op)
	a.OpenAPI().AddOperation(&op)
}

// Register adds a route. The handler's error becomes a problem document.
func Register[I, O any](a *API, op huma.Operation, handle func(context.Context, *I) (*O, error)) {
	r := RuleOf(op)
	api := a.closed
	if len(r.Roles) == 0 {
		api = a.open
	}
	a.table.Declare(op.Method, op.Path, r)
	op = r.gone.describe(op)
	if op.MaxBodyBytes == 0 {
		op.MaxBodyBytes = MaxJSONBytes + 1 // huma refuses a body that reaches the limit
	}
	op.BodyReadTimeout = -1 // the exchange has a rolling one; huma's is five seconds for the whole body
	huma.Register(api, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := handle(ctx, in)
		if err != nil {
			return nil, exchange.Problem(ctx, err)
		}
		return out, nil
	})
}

// Also says that a route may answer with another status and the same body.
func Also[T any](a *API, op huma.Operation, status, description string) huma.Operation {
	op.Responses = map[string]*huma.Response{
		status: {Description: description, Content: map[string]*huma.MediaType{
			"application/json": {Schema: Schema[T](a, "")},
		}},
		"default": a.ProblemResponse(),
	}
	return op
}

// ProblemResponse describes an error.
func (a *API) ProblemResponse() *huma.Response {
	return &huma.Response{Description: "Error", Content: map[string]*huma.MediaType{problem.ContentType: {Schema: Schema[problem.Problem](a, "Problem")}}}
}

// On describes a route of the API: its method and path, its stable id, group, rule, and a summary.
func On(method, route, id, tag string, r Rule, summary string) huma.Operation {
	return r.ruled(huma.Operation{Method: method, Path: path.Join("/", route), OperationID: id, Tags: []string{tag}, Summary: summary})
}
