package rest

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
)

// consolePath is below what the web console is.
const consolePath = "/ui"

// consoleRoutes are the routes of the web console. Its files are the same for everybody; what they show comes from the API.
type consoleRoutes struct {
	table   *route.Table
	console http.Handler // nil: there is none
}

func (s consoleRoutes) add(engine *gin.Engine) {
	if s.console == nil {
		return
	}
	serve := gin.WrapH(s.console)
	for _, path := range []string{consolePath, consolePath + "/*path"} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			s.table.Declare(method, path, route.Anyone)
			engine.Handle(method, path, serve)
		}
	}
	s.table.Declare(http.MethodGet, "/", route.Anyone)
	engine.GET("/", func(c *gin.Context) { c.Redirect(http.StatusFound, consolePath+"/") })
}
