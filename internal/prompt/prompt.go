// Package prompt makes what an agent is told about its thread: which skills there are, how to run
// code that calls tools, and which tools to register with the model.
package prompt

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Prompt is the answer of GET /api/threads/{t}/prompt.
type Prompt struct {
	// Version is a digest of all other members: prompts of the same version are the same.
	Version  string            `json:"version" doc:"A digest of the rest: it changes when what is answered does, and is the same on each server. The ETag has it, too"`
	Text     string            `json:"text"`     // all sections, ready for a system prompt
	Sections map[string]string `json:"sections"` // "skills", "commands", "code_execution", "active_tools"; "" when there is nothing to say
	Mode     string            `json:"mode"`     // sandbox.ModeDirect or sandbox.ModeCode
	Tools    []ToolDefinition  `json:"tools"`
}

// ToolDefinition is a tool to register with the model, as Anthropic's API takes it. A name with "__" is that of an
// MCP server's tool. The others are Skerry's own.
type ToolDefinition struct {
	Name        string          `json:"name" doc:"A name with __ is that of an MCP server's tool, which POST …/tools/call calls; the others are routes of the thread"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema" doc:"JSON Schema of an object"`
	// DeferLoading marks a tool for providers that search by themselves, which load it when they find it. For another
	// provider, leave it out: search_tools is there, too, when there is one.
	DeferLoading bool `json:"defer_loading,omitempty" doc:"Register it only where the provider searches tools itself; search_tools finds it elsewhere"`
}

// Told is the prompt of a thread with what it was made of.
type Told struct {
	Prompt
	Offer  sandbox.Offer
	Skills []sandbox.Skill
}

type definition = ToolDefinition // short, for the definitions of this package

// Input is what a prompt is made of.
type Input struct {
	Mode     string // how the agent gets its tools: sandbox.ModeDirect or sandbox.ModeCode
	Settings sandbox.CodeSettings
	Tools    sandbox.ToolSet
	Servers  []sandbox.ToolServer
	Skills   []sandbox.Skill // the skills of the thread
	Commands []Command       // the commands of the thread
}

// Build makes the prompt of a thread.
func Build(in Input) (Prompt, error) {
	mode, settings, tools := in.Mode, in.Settings, in.Tools
	in.Skills = slices.DeleteFunc(slices.Clone(in.Skills), func(s sandbox.Skill) bool { return s.Hidden }) // for people only
	skills, cut := skillsSection(in.Skills)
	p := Prompt{Mode: mode, Sections: map[string]string{"skills": skills, "commands": commandsSection(in.Commands), "code_execution": "", "active_tools": activeSection(in.Tools)}}
	definitions := []definition{}
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
	if tools.Channels {
		definitions = append(definitions, callSkillTool)
	}
	for _, t := range tools.Tools {
		if mode == sandbox.ModeDirect || t.Disclosure == sandbox.DiscloseAlways || t.Active {
			definitions = append(definitions, definition{
				Name: t.Printed, Description: t.Description, InputSchema: t.Input, DeferLoading: t.Disclosure == sandbox.DiscloseDeferred && !t.Active,
			})
		}
	}
	if len(tools.Tools) > 0 && !settings.Disabled {
		p.Sections["code_execution"] = codeSection(mode, settings, in.Servers, tools)
	}
	for _, d := range definitions {
		if !json.Valid(d.InputSchema) { // the whole prompt could not be written
			return p, fmt.Errorf("the input schema of the tool %s is no JSON", d.Name)
		}
	}
	p.Tools = definitions
	for _, name := range []string{"skills", "commands", "code_execution", "active_tools"} {
		if s := p.Sections[name]; s != "" {
			p.Text += s + "\n"
		}
	}
	return p, p.setVersion()
}

// setVersion makes the version of what the prompt says.
func (p *Prompt) setVersion() error {
	p.Version = ""
	text, err := json.Marshal(p) // members in the order of the type, sections by name
	if err != nil {
		return fmt.Errorf("version of the prompt: %w", err)
	}
	sum := sha256.Sum256(text)
	p.Version = hex.EncodeToString(sum[:versionBytes])
	return nil
}

// versionBytes is how many bytes of the digest a version shows.
const versionBytes = 16

// executeCode describes the tool with the defaults that hold for the tenant.
func executeCode(s sandbox.CodeSettings) definition {
	return definition{
		Name: "execute_code", Description: "Run code in the thread's sandbox. TypeScript, JavaScript and Python can call tools: import them from './servers/<server>' (Python: from servers.<server> import …). Print what you want to see.",
		InputSchema: fmt.Appendf(nil, `{"type":"object","properties":{"code":{"type":"string"},"language":{"enum":["typescript","javascript","python","bash"],"default":%q},"description":{"type":"string","description":"what the code does, for the log"},"timeout":{"type":"integer","minimum":1,"maximum":%d,"default":%d}},"required":["code"]}`,
			s.Language, int(sandbox.MaxCodeTimeout.Seconds()), int(s.Timeout.Seconds())),
	}
}

var (
	searchTools = definition{
		Name: "search_tools", Description: "Find tools by what they do. detail: name, desc (default) or full, which has the parameters of the best few, and names the next. A text that ends in … is whole in the file at wrapper_path.",
		InputSchema: fmt.Appendf(nil, `{"type":"object","properties":{"query":{"type":"string"},"server":{"type":"string"},"detail":{"enum":["name","desc","full"],"default":"desc"},"limit":{"type":"integer","minimum":1,"maximum":%d},"output_schema":{"type":"boolean","description":"with full"}},"required":["query"]}`, sandbox.MaxToolsFound),
	}
	listServers = definition{Name: "list_servers", Description: "List the servers whose tools code can call.", InputSchema: json.RawMessage(`{"type":"object","properties":{}}`)}
)

// codeSection says when and how to call tools by code: in code mode always, in direct mode for many calls.
func codeSection(mode string, settings sandbox.CodeSettings, servers []sandbox.ToolServer, tools sandbox.ToolSet) string {
	var b strings.Builder
	b.WriteString("<code_execution_system>\n")
	if mode == sandbox.ModeCode {
		fmt.Fprintf(&b, "You have %d tools, which you call by code: find one with search_tools, read its parameters (detail full, or the file at its wrapper_path below %s/servers), and call it in execute_code. "+
			"Do all steps of a task in one program: loop over many calls, and keep large data in variables.\n", len(tools.Tools), sandbox.CodeAPIDir)
	} else {
		fmt.Fprintf(&b, "Call a tool directly when one call does it. For many calls, or results that are larger than what you need of them, write a program for execute_code: it can call the same %d tools.\n", len(tools.Tools))
	}
	b.WriteString(howToCall(settings.Language, tools.Tools[0].Printed))
	b.WriteString(workedExample(settings.Language))
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
