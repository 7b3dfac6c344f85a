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
	skill "github.com/skerry-sandbox/skerry/internal/skills"
)

// Prompt is the answer of GET /api/threads/{t}/prompt.
type Prompt struct {
	Text     string            `json:"text"`     // all sections, ready for a system prompt
	Sections map[string]string `json:"sections"` // "skills", "commands", "code_execution"; "" when there is nothing to say
	Mode     string            `json:"mode"`     // sandbox.ModeDirect or sandbox.ModeCode
	// Tools are {name, description, input_schema}. One with "defer_loading": true is for providers that
	// search by themselves, which load it when they find it; for another, leave it out: search_tools is
	// there, too, when there is one.
	Tools []json.RawMessage `json:"tools"`
}

// Input is what a prompt is made of.
type Input struct {
	Mode     string // how the agent gets its tools: sandbox.ModeDirect or sandbox.ModeCode
	Settings sandbox.CodeSettings
	Tools    sandbox.ToolSet
	Servers  []sandbox.ToolServer
	Skills   []skill.Skill // the skills of the thread
	Commands []Command     // the commands of the thread
}

// Build makes the prompt of a thread.
func Build(in Input) (Prompt, error) {
	mode, settings, tools := in.Mode, in.Settings, in.Tools
	in.Skills = slices.DeleteFunc(slices.Clone(in.Skills), func(s skill.Skill) bool { return s.Hidden }) // for people only
	skills, cut := skillsSection(in.Skills)
	p := Prompt{Mode: mode, Tools: []json.RawMessage{}, Sections: map[string]string{"skills": skills, "commands": commandsSection(in.Commands), "code_execution": ""}}
	var definitions []definition
	if !settings.Disabled {
		definitions = append(definitions, executeCode(settings))
	}
	deferred := slices.ContainsFunc(tools.Tools, func(t sandbox.Tool) bool { return t.Disclosure == sandbox.DiscloseDeferred })
	if mode == sandbox.ModeCode || deferred {
		definitions = append(definitions, searchTools, listServers)
	}
	if len(in.Skills) > 0 {
		definitions = append(definitions, skillTools(in.Skills, cut)...)
	}
	for _, t := range tools.Tools {
		if mode == sandbox.ModeDirect || t.Disclosure == sandbox.DiscloseAlways {
			definitions = append(definitions, definition{
				Name: t.Printed, Description: t.Description, InputSchema: t.Input, DeferLoading: t.Disclosure == sandbox.DiscloseDeferred,
			})
		}
	}
	if len(tools.Tools) > 0 && !settings.Disabled {
		p.Sections["code_execution"] = codeSection(mode, settings, in.Servers, tools)
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

// executeCode describes the tool with the defaults that hold for the tenant.
func executeCode(s sandbox.CodeSettings) definition {
	return definition{
		Name: "execute_code", Description: "Run code in the thread's sandbox. TypeScript, JavaScript and Python can call tools: import them from './servers/<server>' (Python: from servers.<server> import …). Print what you want to see.",
		InputSchema: fmt.Appendf(nil, `{"type":"object","properties":{"code":{"type":"string"},"language":{"enum":["typescript","javascript","python","bash"],"default":%q},"timeout":{"type":"integer","minimum":1,"maximum":%d,"default":%d}},"required":["code"]}`,
			s.Language, int(sandbox.MaxCodeTimeout.Seconds()), int(s.Timeout.Seconds())),
	}
}

var (
	searchTools = definition{
		Name: "search_tools", Description: "Find tools by what they do. detail: name, desc (default) or full, which has the parameters and the path of the wrapper.",
		InputSchema: json.RawMessage(`{"type":"object","properties":{"query":{"type":"string"},"server":{"type":"string"},"detail":{"enum":["name","desc","full"],"default":"desc"}},"required":["query"]}`),
	}
	listServers = definition{Name: "list_servers", Description: "List the servers whose tools code can call.", InputSchema: json.RawMessage(`{"type":"object","properties":{}}`)}
)

// codeSection says when and how to call tools by code: in code mode always, in direct mode for many calls.
func codeSection(mode string, settings sandbox.CodeSettings, servers []sandbox.ToolServer, tools sandbox.ToolSet) string {
	var b strings.Builder
	b.WriteString("<code_execution_system>\n")
	if mode == sandbox.ModeCode {
		fmt.Fprintf(&b, "You have %d tools, which you call by code: find one with search_tools, read its parameters (detail full, or the file at its wrapper_path below %s/servers), and call it in execute_code. "+
			"Do all steps of a task in one program: loop over many calls, keep large data in variables, print only what matters.\n", len(tools.Tools), sandbox.CodeAPIDir)
	} else {
		fmt.Fprintf(&b, "Call a tool directly when one call does it. For many calls, or results that are larger than what you need of them, write a program for execute_code: it can call the same %d tools, and only what it prints comes back.\n", len(tools.Tools))
	}
	b.WriteString(howToCall(settings.Language, tools.Tools[0].Printed))
	b.WriteString("<tool_servers>\n")
	for _, s := range servers {
		fmt.Fprintf(&b, "<server><name>%s</name><tools>%d</tools><description>%s</description></server>\n", escape(s.Name), s.ToolCount, escape(s.Description))
	}
	b.WriteString("</tool_servers>\n</code_execution_system>\n")
	return b.String()
}

// howToCall shows a call in the language that execute_code takes by default.
func howToCall(language, tool string) string {
	if language == "python" {
		return fmt.Sprintf("In Python: from servers.<server> import <function>, or call_mcp_tool(%q, {…}), which is there without an import.\n", escape(tool))
	}
	return fmt.Sprintf("In TypeScript: import { <function> } from './servers/<server>', or await callMCPTool(%q, {…}), which is there without an import.\n", escape(tool))
}

// escape makes text of other people safe inside our tags.
func escape(s string) string {
	var b strings.Builder
	if err := xml.EscapeText(&b, []byte(s)); err != nil {
		return "" // a strings.Builder never fails
	}
	return b.String()
}
