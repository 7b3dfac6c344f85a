package rest

import (
	"crypto/sha256"
	_ "embed" // the page
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
)

// docsRoutes are the routes of the documents.
type docsRoutes struct {
	table *route.Table
}

// docsPage shows /openapi.json. It is one file without anything from elsewhere, so that it works on
// a machine without a network.
//
//go:embed docs.html
var docsPage string

func (s docsRoutes) add(engine *gin.Engine, openAPI []byte) {
	policy := "default-src 'none'; connect-src 'self'; style-src " + hashes(docsPage, "style") + "; script-src " + hashes(docsPage, "script") +
		"; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	s.table.Declare(http.MethodGet, "/openapi.json", route.Anyone)
	s.table.Declare(http.MethodGet, "/docs", route.Anyone)
	engine.GET("/openapi.json", func(c *gin.Context) {
		c.Data(http.StatusOK, "application/json", openAPI)
	})
	engine.GET("/docs", func(c *gin.Context) {
		c.Header("Content-Security-Policy", policy)
		c.Data(http.StatusOK, "text/html; charset=utf-8", []byte(docsPage))
	})
}

// hashes allows the inline elements of a page by what is in them.
func hashes(page, tag string) string {
	var out []string
	for {
		_, rest, ok := strings.Cut(page, "<"+tag+">")
		if !ok {
			return strings.Join(out, " ")
		}
		content, after, _ := strings.Cut(rest, "</"+tag+">")
		sum := sha256.Sum256([]byte(content))
		out = append(out, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
		page = after
	}
}
