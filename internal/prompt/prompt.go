// Package prompt makes what an agent is told about its thread: which skills there are, how to run
// code that calls tools, and which tools to register with the model.
package prompt

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/skill"
)

// The modes in which an agent gets its tools.
const (
	ModeDirect = "direct" // every tool is registered with the model
	ModeCode   = "code"   // the model writes code that calls them
	ModeAuto   = "auto"   // direct up to AutoThreshold tools, code above
)

// AutoThreshold is how many tools auto mode still offers directly.
const AutoThreshold = 20

// Prompt is the answer of GET /api/threads/{t}/prompt.
type Prompt struct {
	Text     string            `json:"text"`     // all sections, ready for a system prompt
	Sections map[string]string `json:"sections"` // "skills", "commands", "code_execution"; "" when there is nothing to say
	Mode     string            `json:"mode"`     // ModeDirect or ModeCode
	// Tools are {name, description, input_schema}. One with "defer_loading": true is for providers that
	// search by themselves, which load it when they find it; for another, leave it out: search_tools is
	// there, too, when there is one.
	Tools []json.RawMessage `json:"tools"`
}

// Build makes the prompt. mode "" means ModeAuto.
func Build(mode string, tools sandbox.ToolSet, servers []sandbox.ToolServer, skills []skill.Skill) (Prompt, error) {
	p := Prompt{Mode: mode, Tools: []json.RawMessage{}, Sections: map[string]string{"skills": skillsSection(skills), "commands": "", "code_execution": ""}}
	if mode != ModeDirect && mode != ModeCode {
		p.Mode = ModeDirect
		if len(tools.Tools) > AutoThreshold {
			p.Mode = ModeCode
		}
	}
	definitions := codeTools()
	if p.Mode == ModeDirect {
		definitions = definitions[:1] // execute_code is there in both
		if slices.ContainsFunc(tools.Tools, func(t sandbox.Tool) bool { return t.Disclosure == sandbox.DiscloseDeferred }) {
			definitions = codeTools()
		}
	}
	for _, t := range tools.Tools {
		if p.Mode == ModeDirect || t.Disclosure == sandbox.DiscloseAlways {
			definitions = append(definitions, definition{
				Name: t.Printed, Description: t.Description, InputSchema: t.Input, DeferLoading: t.Disclosure == sandbox.DiscloseDeferred,
			})
		}
	}
	if len(tools.Tools) > 0 {
		p.Sections["code_execution"] = codeSection(servers, tools)
	}
	for _, d := range definitions {
		raw, err := json.Marshal(d)
		if err != nil {
			return p, fmt.Errorf("definition of tool %s: %w", d.Name, err)
		}
		p.Tools = append(p.Tools, raw)
	}
	for _, name := range []string{"skills", "commands", "code_execution"} {
		if s := p.Sections[name]; s != "" {
			p.Text += s + "\n"
		}
	}
	return p, nil
}

type definition struct {
	Name         string          `json:"name"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"input_schema"`
	DeferLoading bool            `json:"defer_loading,omitempty"`
}

func codeTools() []definition {
	return []definition{
		{Name: "execute_code", Description: "Run code in the thread's sandbox. TypeScript, JavaScript and Python can call tools: import them from './servers/<server>' (Python: from servers.<server> import …). Print what you want to see.", InputSchema: json.RawMessage(`{"type":"object","properties":{"code":{"type":"string"},"language":{"enum":["typescript","javascript","python","bash"],"default":"typescript"},"timeout":{"type":"integer","minimum":1,"maximum":120,"default":30}},"required":["code"]}`)},
		{Name: "search_tools", Description: "Find tools by what they do. detail: name, desc (default) or full, which has the parameters and the path of the wrapper.", InputSchema: json.RawMessage(`{"type":"object","properties":{"query":{"type":"string"},"server":{"type":"string"},"detail":{"enum":["name","desc","full"],"default":"desc"}},"required":["query"]}`)},
		{Name: "list_servers", Description: "List the servers whose tools code can call.", InputSchema: json.RawMessage(`{"type":"object","properties":{}}`)},
	}
}

func skillsSection(skills []skill.Skill) string {
	if len(skills) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("Read a skill's SKILL.md before a task that it describes.\n<available_skills>\n")
	for _, s := range skills {
		fmt.Fprintf(&b, "<skill><name>%s</name><description>%s</description><location>%s</location></skill>\n", escape(s.Name), escape(s.Description), escape(s.Location))
	}
	b.WriteString("</available_skills>\n")
	return b.String()
}

func codeSection(servers []sandbox.ToolServer, tools sandbox.ToolSet) string {
	var b strings.Builder
	fmt.Fprintf(&b, "execute_code runs code that can call %d tools. Their wrappers are in %s/servers. Keep large data in the code; print only what matters.\n<tool_servers>\n", len(tools.Tools), sandbox.CodeAPIDir)
	for _, s := range servers {
		fmt.Fprintf(&b, "<server><name>%s</name><tools>%d</tools><description>%s</description></server>\n", escape(s.Name), s.ToolCount, escape(s.Description))
	}
	b.WriteString("</tool_servers>\n")
	return b.String()
}

// escape makes text of other people safe inside our tags.
func escape(s string) string {
	var b strings.Builder
	if err := xml.EscapeText(&b, []byte(s)); err != nil {
		return "" // a strings.Builder never fails
	}
	return b.String()
}
