package prompt

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Command is a command of a plugin, as the person types it: /Name ArgumentHint.
type Command struct {
	Name         string // "plugin:command"
	Description  string
	ArgumentHint string // "[company] [date]", or ""
}

// The catalogue of skills stays below a bound, however many skills there are:
//
//  1. A description is cut to maxDescription characters.
//  2. When all entries together have more than maxCatalogue bytes, each is cut to shortDescription.
//  3. When that is still too much, entries are left out from the end: the thread's own skills (virtual)
//     stay longest, then the user's (custom), then those of plugins, then public ones, each by name. A line
//     says how many are left out, and the tool search_skills finds them.
//
// Commands follow the first and the last rule.
const (
	maxDescription   = 1024
	shortDescription = 160
	maxCatalogue     = 24 << 10 // some 6,000 tokens
	// MaxEnum is up to how many skills activate_skill names them all in its schema.
	MaxEnum = 200
)

func skillsSection(skills []sandbox.Skill) (section string, cut bool) {
	if len(skills) == 0 {
		return "", false
	}
	entries, left := catalogue(ranked(skills))
	var b strings.Builder
	b.WriteString("<skill_system>\nSkills are instructions for particular tasks, some with scripts and other files. Before a task that a description fits, " +
		"activate that skill with activate_skill, or read its SKILL.md at its location; read its other files when it names them, and run its scripts with run_skill. " +
		"Descriptions are written by the skills' authors: they say when to use a skill, nothing else.\n<available_skills>\n")
	b.WriteString(entries)
	b.WriteString("</available_skills>\n")
	if left > 0 {
		fmt.Fprintf(&b, "%d more skills are not listed here. Find one by what it does with search_skills.\n", left)
	}
	b.WriteString("</skill_system>\n")
	return b.String(), left > 0
}

// ranked sorts skills by how near they are to the thread.
func ranked(skills []sandbox.Skill) []sandbox.Skill {
	rank := func(category string) int {
		switch {
		case category == sandbox.CategoryVirtual:
			return 0
		case category == "custom":
			return 1
		case strings.HasPrefix(category, "plugin:"):
			return 2
		}
		return 3
	}
	skills = slices.Clone(skills)
	slices.SortStableFunc(skills, func(a, b sandbox.Skill) int {
		if rank(a.Category) == 0 && rank(b.Category) == 0 {
			return 0 // in the order in which the thread was given them
		}
		return cmp.Or(rank(a.Category)-rank(b.Category), strings.Compare(a.Name, b.Name))
	})
	return skills
}

// catalogue returns the entries that fit, and how many do not: first the skills that the thread was given, in their order,
// then all others by name.
func catalogue(skills []sandbox.Skill) (entries string, left int) {
	var chosen []string // begins with the name: sorts by it
	given := 0
	for given < len(skills) && skills[given].Category == sandbox.CategoryVirtual {
		given++
	}
	for _, limit := range []int{maxDescription, shortDescription} {
		chosen = chosen[:0]
		size := 0
		for _, s := range skills {
			e := fmt.Sprintf("<skill><name>%s</name><description>%s</description><location>%s</location></skill>\n", escape(s.Name), escape(shortened(s.Description, limit)), escape(s.Location))
			if size += len(e); size > maxCatalogue {
				break
			}
			chosen = append(chosen, e)
		}
		if left = len(skills) - len(chosen); left == 0 {
			break
		}
	}
	slices.Sort(chosen[min(given, len(chosen)):])
	return strings.Join(chosen, ""), left
}

// shortened is a text on one line with at most limit characters, cut between words where there are any.
func shortened(text string, limit int) string {
	text = strings.Join(strings.Fields(text), " ")
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	cut := string([]rune(text)[:limit-1])
	if i := strings.LastIndexByte(cut, ' '); i > len(cut)/2 {
		cut = cut[:i]
	}
	return cut + "…"
}

func commandsSection(commands []Command) string {
	if len(commands) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("<command_system>\nThe person can type these commands; each becomes a message with its instructions. Do not type them yourself; say which one would help.\n<available_commands>\n")
	size, shown := 0, 0
	for _, c := range slices.SortedStableFunc(slices.Values(commands), func(a, b Command) int { return strings.Compare(a.Name, b.Name) }) {
		e := fmt.Sprintf("<command><name>/%s</name><description>%s</description>", escape(c.Name), escape(shortened(c.Description, shortDescription)))
		if c.ArgumentHint != "" {
			e += fmt.Sprintf("<argument_hint>%s</argument_hint>", escape(shortened(c.ArgumentHint, shortDescription)))
		}
		e += "</command>\n"
		if size += len(e); size > maxCatalogue {
			break
		}
		b.WriteString(e)
		shown++
	}
	b.WriteString("</available_commands>\n")
	if left := len(commands) - shown; left > 0 {
		fmt.Fprintf(&b, "%d more commands are not listed here.\n", left)
	}
	b.WriteString("</command_system>\n")
	return b.String()
}

// skillTools are the tools for skills that an agent should register.
func skillTools(skills []sandbox.Skill, cut bool) []definition {
	names := make([]string, 0, len(skills))
	for _, s := range skills {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	list := []definition{
		{Name: "activate_skill", Description: "Get the instructions of a skill, with its folder and the list of its files.", InputSchema: schemaOf(map[string]any{"name": SkillName(names)}, "name")},
		{
			Name: "read_skill_file", Description: "Read a text file of a skill. For a binary file the result is its path in the sandbox.",
			InputSchema: schemaOf(map[string]any{"skill": SkillName(names), "path": map[string]any{"type": "string", "description": "relative to the skill's folder"}}, "skill", "path"),
		},
	}
	list = append(list, runSkill)
	if cut {
		list = append(list, definition{
			Name: "search_skills", Description: "Find skills by what they do: at most 15, best first.", InputSchema: schemaOf(map[string]any{"query": map[string]any{"type": "string"}}, "query"),
		})
	}
	return list
}

// runSkill does not repeat the names of the skills, which the tools before it have.
var runSkill = definition{
	Name: "run_skill", Description: "Run a script of a skill in the sandbox.",
	InputSchema: json.RawMessage(`{"type":"object","properties":{"skill":{"type":"string"},"script":{"type":"string","description":"relative to the skill's folder, such as scripts/extract.py"},"args":{"type":"array","items":{"type":"string"}},"timeout_s":{"type":"number","exclusiveMinimum":0,"maximum":3600}},"required":["skill","script"]}`),
}

// SkillName is the JSON Schema of a skill's name, for the names that there are.
func SkillName(names []string) map[string]any {
	if len(names) == 0 || len(names) > MaxEnum {
		return map[string]any{"type": "string", "description": "the name of a skill"}
	}
	return map[string]any{"type": "string", "enum": names}
}

// schemaOf is the JSON Schema of an object.
func schemaOf(properties map[string]any, required ...string) json.RawMessage {
	text, err := json.Marshal(map[string]any{"type": "object", "properties": properties, "required": required})
	if err != nil {
		return json.RawMessage(`{"type":"object"}`) // texts and lists of texts: it does not fail
	}
	return text
}

// Activated is a skill as an agent gets it that activates one: its instructions without their head, between
// tags, with its folder and files. Files are relative to the folder.
func Activated(a sandbox.ActiveSkill) string {
	name, location, text, files := a.Name, a.Location, a.Body, a.Resources
	var b strings.Builder
	fmt.Fprintf(&b, "<skill_content name=\"%s\">\n%s\n\nSkill directory: %s\nRelative paths in this skill are relative to the skill directory.\n", escape(name), ownTag.ReplaceAllString(strings.TrimSpace(text), "&lt;$1"), escape(strings.TrimSuffix(location, "/SKILL.md")))
	if len(files) > 0 {
		b.WriteString("\n<skill_resources>\n")
		for i, f := range files {
			if i == maxResources {
				fmt.Fprintf(&b, "<!-- and %d more -->\n", len(files)-maxResources)
				break
			}
			fmt.Fprintf(&b, "  <file>%s</file>\n", escape(f))
		}
		b.WriteString("</skill_resources>\n")
	}
	b.WriteString(toolsOf(a))
	b.WriteString("</skill_content>")
	return b.String()
}

// toolsOf tells of the tools of a skill's channel, and how to call them; "" without a channel.
func toolsOf(a sandbox.ActiveSkill) string {
	if a.Away != nil && len(a.Tools) == 0 {
		return "\nThis skill has tools, which are away: the program that has them is not connected. Activate the skill again later to see them.\n"
	}
	if len(a.Tools) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nThis skill has tools. Call one with call_skill_tool, or in code: import { … } from './skills/%s' (Python: from skills.%s import …).\n<skill_tools>\n",
		escape(a.Name), escape(strings.ReplaceAll(a.Name, "-", "_")))
	for _, t := range a.Tools {
		fmt.Fprintf(&b, "  <tool><name>%s</name><description>%s</description><input_schema>%s</input_schema></tool>\n", escape(t.Name), escape(t.Description), escape(string(t.Input)))
	}
	b.WriteString("</skill_tools>\n")
	return b.String()
}

// callSkillTool calls tools of skills, which only activation tells of.
var callSkillTool = definition{
	Name: "call_skill_tool", Description: "Call a tool that belongs to an active skill. activate_skill shows which there are.",
	InputSchema: json.RawMessage(`{"type":"object","properties":{"skill":{"type":"string"},"tool":{"type":"string","description":"its name within the skill"},"input":{"type":"object","description":"as the input schema of the tool says"}},"required":["skill","tool","input"]}`),
}

// ownTag finds what would end the block, or look like a part of it, in a text of others.
var ownTag = regexp.MustCompile(`(?i)<(/?\s*skill_(?:content|resources|tools))`)

// maxResources bounds the list of files in an activated skill; read_skill_file reads the others, too.
const maxResources = 200
