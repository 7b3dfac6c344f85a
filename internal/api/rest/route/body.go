package route

import (
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/skerry-sandbox/skerry/internal/api/rest/problem"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

var jsonBody = []string{"application/json"}

// CheckBody refuses a body of another type than the route takes. A browser sends the types of
// forms to other sites without asking first; JSON it does not.
func (t *Table) CheckBody(c *gin.Context) {
	r := c.Request
	if r.ContentLength == 0 || r.Method == http.MethodGet || r.Method == http.MethodHead {
		return
	}
	rule, _ := t.Rule(c)
	want := rule.Bodies
	if want == nil {
		want = jsonBody
	}
	given := r.Header.Get("Content-Type")
	if slices.Contains(want, AnyType) || slices.Contains(want, given) {
		return
	}
	got, params, err := mime.ParseMediaType(given)
	charset := strings.ToLower(params["charset"])
	if err == nil && slices.Contains(want, got) && (charset == "" || charset == "utf-8") {
		return
	}
	detail := "the body has to be " + strings.Join(want, " or ")
	problem.Write(c.Writer, problem.New(sandbox.Invalid, detail, problem.FieldError{Field: "Content-Type", Detail: detail}).WithStatus(http.StatusUnsupportedMediaType))
	c.Abort()
}
