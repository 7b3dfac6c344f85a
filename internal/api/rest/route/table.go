package route

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"
)

// Table has the rule of each route of the server before the first request.
type Table struct {
	rules   map[string]Rule     // by method and path of gin
	queries map[string][]string // the parameters that a query may have, likewise; sorted
}

// NewTable returns a table without routes.
func NewTable() *Table { return &Table{rules: map[string]Rule{}, queries: map[string][]string{}} }

// Declare notes the rule of a route. path is as in the document, or as gin has it.
func (t *Table) Declare(method, path string, r Rule) { t.rules[method+" "+ginPath(path)] = r }

// Rule returns the rule of the route that gin found for a request.
func (t *Table) Rule(c *gin.Context) (r Rule, ok bool) {
	r, ok = t.rules[c.Request.Method+" "+c.FullPath()]
	return r, ok
}

// Rules returns all rules, by method and path of gin.
func (t *Table) Rules() map[string]Rule { return t.rules }

// Check reports a route without a rule, or about a thread without the server that answers it.
func (t *Table) Check(routes gin.RoutesInfo) error {
	for _, route := range routes {
		r, ok := t.rules[route.Method+" "+route.Path]
		switch {
		case !ok:
			return fmt.Errorf("rest: %s %s: no rule says who may call it", route.Method, route.Path)
		case r.Server == AnyServer && (strings.HasPrefix(route.Path, "/api/threads/:thread") || strings.HasPrefix(route.Path, MCP)):
			return fmt.Errorf("rest: %s %s: its rule names no server that answers", route.Method, route.Path)
		}
	}
	return nil
}

// MCP is the path of the endpoint of MCP, whose thread may be named by the header ThreadHeader.
const (
	MCP          = "/mcp"
	ThreadHeader = "Skerry-Thread"
)

// ginPath writes /a/{b} as gin does: /a/:b.
func ginPath(path string) string {
	return strings.NewReplacer("{", ":", "}", "").Replace(path)
}

// IsRead reports whether a method changes nothing.
func IsRead(method string) bool { return method == http.MethodGet || method == http.MethodHead }
