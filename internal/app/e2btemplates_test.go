package app

import (
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/instance"
)

// TestE2BTemplates: a server does not start with a name for a template that is not there.
func TestE2BTemplates(t *testing.T) {
	all := map[string]instance.Template{"base": {}}
	if err := checkE2BTemplates(map[string]string{"mine": "base"}, all, "docker"); err != nil {
		t.Error(err)
	}
	err := checkE2BTemplates(map[string]string{"mine": "base", "other": "ofice"}, all, "docker")
	if err == nil || !strings.Contains(err.Error(), `e2b_templates: "other" stands for the template "ofice"`) {
		t.Error(err)
	}
}
