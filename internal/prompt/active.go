package prompt

import (
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// activeSection names the tools that the agent activated and may use, whose definitions it has; "" for none.
func activeSection(tools sandbox.ToolSet) string {
	var b strings.Builder
	for _, t := range tools.Tools {
		if t.Active {
			b.WriteString("<tool>" + escape(t.Printed) + "</tool>\n")
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "<active_tools>\nYou found or activated these tools before. Call them directly.\n" + b.String() + "</active_tools>\n"
}
