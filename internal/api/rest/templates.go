package rest

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/service"
)

// templateRoutes are the routes of templates.
type templateRoutes struct {
	sandboxes service.Sandboxes
	sbom      func(ctx context.Context, template string) ([]byte, error) // nil: not known
}

// sbomType is the media type of CycloneDX in JSON.
const sbomType = "application/vnd.cyclonedx+json"

// templateView is a template as a caller sees it.
type templateView struct {
	sandbox.Template
	// Image may be a path of the host, and so is for operators.
	Image string `json:"image,omitempty" doc:"What the driver starts: a reference, or a folder of the host; for operators"`
}

func (s templateRoutes) add(api *route.API) {
	route.Register(api, route.On(http.MethodGet, "/api/templates", "listTemplates", route.TagThreads, route.Agents, "Kinds of sandbox that can be asked for"), s.list)
	op := route.On(http.MethodGet, "/api/templates/{name}/sbom", "templateSBOM", route.TagThreads, route.Agents,
		"What the image of a template is made of, read in a sandbox of its own: packages with versions and licences, as CycloneDX")
	op.Responses = map[string]*huma.Response{
		"200":     {Description: "A list that is at most an hour old", Content: map[string]*huma.MediaType{sbomType: {}}},
		"default": api.ProblemResponse(),
	}
	route.Register(api, op, s.parts)
}

func (s templateRoutes) list(ctx context.Context, in *route.ListIn) (*route.Body[route.Page[templateView]], error) {
	list := s.sandboxes.Templates()
	views := make([]templateView, len(list))
	for i, t := range list {
		views[i].Template = t
		if exchange.CallerOf(ctx).Operator {
			views[i].Image = t.Image
		}
	}
	return route.PageIn(*in, views, func(t templateView) string { return t.Name })
}

func (s templateRoutes) parts(ctx context.Context, in *struct {
	Name string `path:"name" minLength:"1" maxLength:"128"`
},
) (*route.Written, error) {
	if s.sbom == nil {
		return nil, sandbox.Errorf(sandbox.NotSupported, "this server does not look into images")
	}
	text, err := s.sbom(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	return &route.Written{Body: func(c huma.Context) {
		w := humagin.Unwrap(c).Writer
		w.Header().Set("Content-Type", sbomType)
		_, _ = w.Write(text) // the client is gone when this fails
	}}, nil
}
