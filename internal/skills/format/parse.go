package format

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Limits of the fields of SKILL.md, those of the standard. Only MaxName is a wall: what is beyond the
// others is a finding.
const (
	MaxName          = 64 // characters
	maxDescription   = 1024
	maxCompatibility = 500
	maxBodyLines     = 500
)

// standardKeys are those of the Agent Skills standard; clientKeys are in use with well-known clients.
var (
	standardKeys = []string{"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
	clientKeys   = []string{
		"when_to_use", "argument-hint", "arguments", "disable-model-invocation", "user-invocable", "disallowed-tools", "model",
		"effort", "context", "agent", "background", "hooks", "paths", "shell", "version", "author", "required-secrets", "secrets-autonomous",
	}
	standardName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
)

// Parse reads the SKILL.md of the skill in a folder of that name. It is lenient: what the standard does not
// allow and still can be understood is a finding. Among these are unknown keys, a name that is not the
// folder's, texts that are too long, and a colon without quotes. The error is Invalid when the skill cannot
// be loaded (no description, no YAML, a folder with an impossible name). Then the skill is Broken and bears
// what is known of it. One of the findings, SeverityError, says the same. The findings are in
// Skill.Findings, too. Parse sets neither Category, Location, Digest nor Enabled.
func Parse(folder string, text []byte) (sandbox.Skill, []sandbox.Finding, error) {
	front, findings, err := ReadFront(text)
	p := parser{reader: reader{findings: findings}, front: front}
	sk := sandbox.Skill{Name: folder}
	if e := CheckName(folder); e != nil {
		err = p.fail("folder-name", 0, "%s", sandbox.TextOf(e))
	}
	if err == nil {
		err = p.fields(&sk)
	}
	if err != nil {
		sk.Broken = true
	} else {
		sk.Frontmatter = front.JSON
	}
	for i := range p.findings {
		p.findings[i].File = "SKILL.md"
	}
	sk.Findings = p.findings
	return sk, p.findings, err
}

// CheckName says whether a skill can have this name: letters, digits, blanks, and - _ . + within, at most
// MaxName characters. The standard wants less (a-z, 0-9 and -), which is a finding. Invalid otherwise.
func CheckName(name string) error {
	bad := func(c rune) bool {
		return !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune(" -_.+", c)
	}
	switch {
	case name == "" || utf8.RuneCountInString(name) > MaxName:
		return sandbox.Errorf(sandbox.Invalid, "a skill's name has 1 to %d characters", MaxName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, bad):
		return sandbox.Errorf(sandbox.Invalid, "a skill's name has letters, digits and - _ . +, nothing else")
	case strings.HasPrefix(name, ".") || strings.HasPrefix(name, "-") || strings.TrimSpace(name) != name:
		return sandbox.Errorf(sandbox.Invalid, "a skill's name begins with a letter or a digit")
	}
	return nil
}

// parser reads the fields.
type parser struct {
	reader
	front Front
}

func (p *parser) warn(rule, key, format string, args ...any) {
	p.add(rule, sandbox.SeverityWarning, p.front.Lines[key], format, args...)
}

func (p *parser) fields(sk *sandbox.Skill) error {
	sk.Description = strings.TrimSpace(p.text("description"))
	if sk.Description == "" {
		return p.fail("no-description", p.front.Lines["description"], "there is no description: say what the skill does and when to use it")
	}
	if n := utf8.RuneCountInString(sk.Description); n > maxDescription {
		p.warn("description-too-long", "description", "the description has %d characters; the standard allows %d", n, maxDescription)
	}
	sk.Title = strings.TrimSpace(p.text("name"))
	p.checkTitle(sk)
	sk.License = p.text("license")
	sk.Compatibility = p.text("compatibility")
	if n := utf8.RuneCountInString(sk.Compatibility); n > maxCompatibility {
		p.warn("compatibility-too-long", "compatibility", "compatibility has %d characters; the standard allows %d", n, maxCompatibility)
	}
	sk.ArgumentHint = p.hint()
	sk.AllowedTools = p.tools()
	sk.Hidden = p.flag("disable-model-invocation", false)
	sk.NotCallable = !p.flag("user-invocable", true)
	p.metadata(sk)
	for _, key := range slices.Sorted(maps.Keys(p.front.Fields)) {
		switch {
		case slices.Contains(standardKeys, key):
		case slices.Contains(clientKeys, key):
			p.add("unknown-key", sandbox.SeverityInfo, p.front.Lines[key], "%q is no key of the standard; some clients know it", key)
		default:
			p.warn("unknown-key", key, "%q is no key of the standard; put it under metadata", cut(key))
		}
	}
	p.body()
	return nil
}

func (p *parser) checkTitle(sk *sandbox.Skill) {
	switch {
	case sk.Title == "":
		p.warn("name-missing", "name", "there is no name; the folder's counts: %q", sk.Name)
	case sk.Title != sk.Name:
		p.warn("name-not-folder", "name", "the name %q is not the folder's; the folder's counts: %q", cut(sk.Title), sk.Name)
	}
	if sk.Title != "" && (!standardName.MatchString(sk.Title) || len(sk.Title) > MaxName) {
		p.warn("name-syntax", "name", "a name has at most %d of a-z, 0-9 and single - between them", MaxName)
	}
}

// text returns a field that should be text. A number or a boolean is taken as it is written in JSON.
func (p *parser) text(key string) string {
	switch v := p.front.Fields[key].(type) {
	case nil:
		return ""
	case string:
		return v
	case bool, int, uint64, float64:
		p.warn("wrong-type", key, "%s should be text; put it in quotes", key)
		return fmt.Sprint(v)
	default:
		p.warn("wrong-type", key, "%s should be text; it is ignored", key)
		return ""
	}
}

// hint is the argument hint. Authors write [file] without quotes, which is a list in YAML.
func (p *parser) hint() string {
	list, ok := p.front.Fields["argument-hint"].([]any)
	if !ok {
		return p.text("argument-hint")
	}
	var parts []string
	for _, v := range list {
		parts = append(parts, fmt.Sprint(v))
	}
	p.warn("wrong-type", "argument-hint", "argument-hint should be text; put it in quotes")
	return "[" + strings.Join(parts, ", ") + "]"
}

// flag reads a boolean, also one in words.
func (p *parser) flag(key string, def bool) bool {
	v, ok := p.front.Fields[key]
	if !ok || v == nil {
		return def
	}
	switch strings.ToLower(fmt.Sprint(v)) {
	case "true", "yes", "on", "1":
		return true
	case "false", "no", "off", "0":
		return false
	}
	p.warn("wrong-type", key, "%s should be true or false; it is ignored", key)
	return def
}

// tools reads allowed-tools: a text with blanks or commas between, or a list. What is in brackets
// belongs together: "Bash(git add:*) Read" are two.
func (p *parser) tools() []string {
	var all []string
	switch v := p.front.Fields["allowed-tools"].(type) {
	case nil:
	case string:
		all = splitTools(v)
	case []any:
		for _, one := range v {
			s, ok := one.(string)
			if !ok {
				p.warn("wrong-type", "allowed-tools", "an entry of allowed-tools is not text; it is ignored")
				continue
			}
			if s = strings.TrimSpace(s); s != "" {
				all = append(all, s)
			}
		}
	default:
		p.warn("wrong-type", "allowed-tools", "allowed-tools should be text, with blanks between the tools, or a list; it is ignored")
	}
	return all
}

func splitTools(s string) []string {
	depth := 0
	return strings.FieldsFunc(s, func(c rune) bool {
		switch c {
		case '(':
			depth++
		case ')':
			depth = max(depth-1, 0)
		}
		return depth == 0 && (c == ',' || unicode.IsSpace(c))
	})
}

func (p *parser) metadata(sk *sandbox.Skill) {
	switch m := p.front.Fields["metadata"].(type) {
	case nil:
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if _, ok := m[key].(string); !ok {
				p.add("metadata-type", sandbox.SeverityInfo, p.front.Lines["metadata"], "metadata.%s is not text, which the standard wants", cut(key))
			}
		}
		text, err := json.Marshal(m)
		if err != nil {
			p.warn("wrong-type", "metadata", "metadata has a value that JSON has not; it is ignored")
			return
		}
		sk.Metadata = text
	default:
		p.warn("wrong-type", "metadata", "metadata should be a mapping of keys to texts")
	}
}

func (p *parser) body() {
	body := strings.TrimSpace(string(p.front.Body))
	if body == "" {
		p.add("body-empty", sandbox.SeverityWarning, 0, "there are no instructions below the frontmatter")
	}
	if n := strings.Count(body, "\n") + 1; n > maxBodyLines {
		p.add("body-long", sandbox.SeverityInfo, 0, "the instructions have %d lines; %d or fewer are recommended, with the rest in files of their own", n, maxBodyLines)
	}
}
