package serverconfig

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/excerpt"
)

// Limits of what a configuration says about tools.
const (
	MaxTools       = 2000 // of a server
	MaxToolName    = 128
	maxToolConfigs = MaxTools
	maxSummary     = 500 // characters
	maxKeywords    = 50
	maxKeyword     = 64 // characters
)

// Tool is what the configuration of a server says about one of its tools, in "tools". A zero
// value says nothing.
type Tool struct {
	TimeoutMillis int64              `json:"timeout"`     // of a call; 0 takes the server's
	Concurrency   int                `json:"concurrency"` // calls at once; 0 takes the server's
	Disclosure    sandbox.Disclosure `json:"disclosure"`
	Summary       string             `json:"summary"`
	Keywords      []string           `json:"keywords"`
	Capabilities  []string           `json:"capabilities"` // that it needs, beside those of the server
}

// Offers reports whether a tool is offered to any caller. A tool has to be enabled, and not disabled.
func (s *Server) Offers(tool string) bool {
	enabled := s.EnabledTools == nil || slices.Contains(s.EnabledTools, tool)
	return enabled && !slices.Contains(s.DisabledTools, tool) && s.disclosure(tool) != sandbox.DiscloseHidden
}

// disclosure is that of a tool: its own, else that of the server.
func (s *Server) disclosure(tool string) sandbox.Disclosure {
	return cmp.Or(s.Tools[tool].Disclosure, s.Disclosure)
}

// Describes reports whether the configuration says anything about a tool.
func (s *Server) Describes(tool string) bool {
	_, own := s.Tools[tool]
	return own || s.Capabilities != nil || s.Disclosure != ""
}

// Apply puts into t what the configuration says about it.
func (s *Server) Apply(t *sandbox.Tool) {
	c := s.Tools[t.Name]
	t.Disclosure, t.Summary, t.Keywords = s.disclosure(t.Name), c.Summary, slices.Clone(c.Keywords)
	t.Requires = slices.Concat(s.Capabilities, c.Capabilities)
}

// checkTools completes what is said about tools and reports the first thing wrong with it.
func (s *Server) checkTools() error {
	if err := checkDisclosure("disclosure", s.Disclosure); err != nil {
		return err
	}
	for field, list := range map[string][]string{"enabledTools": s.EnabledTools, "disabledTools": s.DisabledTools} {
		if len(list) > MaxTools {
			return InvalidField(field, "%d names, at most %d", len(list), MaxTools)
		}
	}
	if len(s.Tools) > maxToolConfigs {
		return InvalidField("tools", "%d tools, at most %d", len(s.Tools), maxToolConfigs)
	}
	for name, c := range s.Tools {
		if err := c.check("tools." + excerpt.Of(name, MaxToolName)); err != nil {
			return err
		}
		s.Tools[name] = c
	}
	return nil
}

func checkDisclosure(field string, d sandbox.Disclosure) error {
	switch d {
	case "", sandbox.DiscloseAlways, sandbox.DiscloseDeferred, sandbox.DiscloseHidden:
		return nil
	}
	return InvalidField(field, "%.40q is not always, deferred or hidden", d)
}

func (c *Tool) check(field string) error {
	if err := checkDisclosure(field+".disclosure", c.Disclosure); err != nil {
		return err
	}
	if err := checkTimeout(field+".timeout", c.TimeoutMillis); err != nil {
		return err
	}
	if err := checkConcurrency(field+".concurrency", c.Concurrency); err != nil {
		return err
	}
	c.Summary = strings.Join(strings.Fields(c.Summary), " ")
	if utf8.RuneCountInString(c.Summary) > maxSummary {
		return InvalidField(field+".summary", "has more than %d characters", maxSummary)
	}
	var err error
	if c.Capabilities, err = sandbox.CheckCapabilities(c.Capabilities); err != nil {
		return InvalidField(field+".capabilities", "%s", excerpt.Detail(err))
	}
	if len(c.Keywords) > maxKeywords {
		return InvalidField(field+".keywords", "%d keywords, at most %d", len(c.Keywords), maxKeywords)
	}
	for i, k := range c.Keywords {
		c.Keywords[i] = strings.Join(strings.Fields(k), " ")
		if c.Keywords[i] == "" || utf8.RuneCountInString(c.Keywords[i]) > maxKeyword {
			return InvalidField(field+".keywords", "a keyword has 1 to %d characters", maxKeyword)
		}
	}
	return nil
}

// maxConcurrency is the most calls at once that a configuration may allow.
const maxConcurrency = 1000

func checkConcurrency(field string, n int) error {
	if n < 0 || n > maxConcurrency {
		return InvalidField(field, "%d: want 1 to %d calls at once", n, maxConcurrency)
	}
	return nil
}

// checkTimeout checks milliseconds; 0 says nothing.
func checkTimeout(field string, millis int64) error {
	if t := time.Duration(millis) * time.Millisecond; millis != 0 && (millis < 0 || millis > maxTimeout.Milliseconds() || t < minTimeout) {
		return InvalidField(field, "%d milliseconds: want %d to %d", millis, minTimeout.Milliseconds(), maxTimeout.Milliseconds())
	}
	return nil
}
