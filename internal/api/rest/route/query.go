package route

import (
	"fmt"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gin-gonic/gin"

	"github.com/skerry-sandbox/skerry/internal/api/rest/problem"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// maxShownName bounds what an error shows of a name that the client made up.
const maxShownName = 64

// LearnQueries notes which parameters the queries of the routes may have. It comes after the last route.
func (t *Table) LearnQueries(doc *huma.OpenAPI) {
	for path, item := range doc.Paths {
		if !strings.HasPrefix(path, "/api/") {
			continue // probes and browsers may add what they like to the others
		}
		for _, op := range []*huma.Operation{item.Get, item.Head, item.Put, item.Post, item.Patch, item.Delete} {
			if op == nil {
				continue
			}
			names := []string{}
			for _, p := range op.Parameters {
				if p.In == "query" {
					names = append(names, p.Name)
				}
			}
			slices.Sort(names)
			t.queries[op.Method+" "+ginPath(path)] = names
		}
	}
}

// CheckQuery refuses a parameter that the route does not have. To leave out a misspelt filter would answer
// more than the client asked for.
func (t *Table) CheckQuery(c *gin.Context) {
	known, ok := t.queries[c.Request.Method+" "+c.FullPath()]
	if !ok || c.Request.URL.RawQuery == "" {
		return
	}
	var unknown []string
	for name := range c.Request.URL.Query() {
		if !slices.Contains(known, name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return
	}
	slices.Sort(unknown)
	detail := "this route takes no parameters in its query"
	if len(known) > 0 {
		detail = "this route takes " + strings.Join(known, ", ")
	}
	name := unknown[0]
	if len(name) > maxShownName {
		name = name[:maxShownName]
	}
	problem.Write(c.Writer, problem.New(sandbox.Invalid, fmt.Sprintf("unknown query parameter %q: %s", name, detail), problem.FieldError{Field: "query", Detail: detail}))
	c.Abort()
}
