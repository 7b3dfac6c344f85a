// Package toolscan looks for signs of poisoning in what MCP servers say about their tools: text that is for the
// model and hidden from people, and text that tells the model to do what is not the tool's business. It reads the
// description and the whole schema, because a model does. What it finds are findings, for people and for
// policies; it refuses nothing, and who knows the rules can write around them.
package toolscan

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Bounds of what is looked at and told.
const (
	maxText     = 64 << 10 // of one text
	maxTexts    = 2000     // of one tool
	maxDepth    = 32
	maxFindings = 20
	longText    = 4000 // characters of a description
	maxExcerpt  = 120
	shortest    = 32 // bytes of the shortest text that is encoded
)

// rule is a sign that an expression finds.
type rule struct {
	name     string
	severity string
	pattern  *regexp.Regexp
	message  string
	words    []string // one of these, in small letters, is in every text that the pattern finds; nil: unknown
}

// verbs by which a text tells a reader to get hold of something.
const getVerbs = `(?:read|open|cat|load|access|get|fetch|include|attach|append|pass|send|upload|copy|provide|insert|put|extract|collect)`

// treasure is what no tool has to ask a model for.
const treasure = `(?:~/\.(?:ssh|aws|config|cursor|kube|gnupg|npmrc|netrc)|id_rsa|id_ed25519|/etc/(?:passwd|shadow)|(?:^|[\s/"'` + "`" + `(])\.env\b|mcp\.json|private keys?\b|ssh keys?\b|(?:conversation|chat) (?:history|log)|system prompt|(?:previous|earlier) messages|(?:user'?s?|your|all) (?:passwords?|credentials|api keys?|(?:access )?tokens?|secrets)|environment variables)`

var rules = []rule{
	{"override", sandbox.SeverityError, regexp.MustCompile(`(?i)\b(?:ignore|disregard|forget|override|bypass)\b[^.\n]{0,30}\b(?:previous|prior|above|earlier|preceding|existing|safety|system|other|all|your)\b[^.\n]{0,20}\b(?:instructions?|rules?|prompts?|guidelines?|directives?|messages?|polic(?:y|ies)|restrictions?)\b`), "tells the model to ignore what it was told", []string{"ignore", "disregard", "forget", "override", "bypass"}},
	{"prompt-markup", sandbox.SeverityError, regexp.MustCompile(`(?i)<\s*/?\s*(?:important|system|secret|instructions?|admin|hidden|assistant|developer|critical|override)\s*/?\s*>|\[/?INST\]|<\|(?:im_start|im_end|system|user|assistant|endoftext)\|>|(?m:^\s*#{2,}\s*(?:system|instructions? (?:for|to) (?:the )?(?:ai|model|assistant|llm|agent)))`), "has markup of prompts, by which instructions are set apart", []string{"<", "[inst", "[/inst", "##"}},
	{"hide-from-user", sandbox.SeverityError, regexp.MustCompile(`(?i)\b(?:do not|don'?t|never|must not|should not|without|avoid)\b\s+(?:\w+\s+){0,2}?(?:tell(?:ing)?|mention(?:ing)?|inform(?:ing)?|notify(?:ing)?|reveal(?:ing)?|disclos(?:e|ing)|alert(?:ing)?|show(?:ing)?|letting|explain(?:ing)?)\b[^.\n]{0,40}\b(?:the user|the human|users|them|anyone|this to)\b|\b(?:hide|conceal|keep)\b[^.\n]{0,40}\b(?:from|secret to) (?:the )?(?:user|human)s?\b`), "wants something hidden from the user", []string{"not ", "never", "don", "without", "avoid", "hide", "conceal", "keep"}},
	{"reads-secrets", sandbox.SeverityError, regexp.MustCompile(`(?i)\b` + getVerbs + `\b[^.\n]{0,60}?` + treasure), "asks the model for files, secrets or its conversation", []string{"~/", "id_rsa", "id_ed", "/etc/", ".env", "mcp.json", "key", "history", "log", "system prompt", "messages", "password", "credential", "token", "secret", "environment"}},
	{"sends-elsewhere", sandbox.SeverityWarning, regexp.MustCompile(`(?i)\b(?:send|post|forward|upload|transmit|exfiltrate|bcc|cc)\b[^.\n]{0,60}\b(?:to|at|address)\b[^\n]{0,20}(?:https?://|[a-z0-9._%+-]+@[a-z0-9-]+\.[a-z]{2,})`), "names an address that something is to be sent to", []string{"send", "post", "forward", "upload", "transmit", "exfiltrate", "cc"}},
	{"steers-other-tools", sandbox.SeverityWarning, regexp.MustCompile(`(?i)\b(?:before|after|whenever|when|instead of|prior to|each time|every time)\b[^.\n]{0,20}\b(?:using|calling|invoking|running|you (?:use|call)|use of)\b[^.\n]{0,20}\b(?:any|every|all|other|another)\b[^.\n]{0,20}\b(?:tools?|functions?)\b|\b(?:other|any|all) tools?\b[^.\n]{0,40}\b(?:must|should|have to)\b|\b(?:replaces?|supersedes?|deprecated in favou?r of)\b[^.\n]{0,30}\btools? (?:of|from)\b`), "says how other tools are to be used", []string{"tool", "function"}},
	{"always-first", sandbox.SeverityInfo, regexp.MustCompile(`(?i)\b(?:always|must)\b[^.\n]{0,30}\b(?:call|use|invoke|run)(?:ed|d)?\b[^.\n]{0,20}\b(?:first|before (?:any|every|all|each))\b`), "wants to be called before anything else", []string{"first", "before"}},
	{"html-comment", sandbox.SeverityWarning, regexp.MustCompile(`<!--`), "has a comment that a page would not show", []string{"<!--"}},
	{"encoded-text", sandbox.SeverityWarning, regexp.MustCompile(`[A-Za-z0-9+/]{160,}={0,2}|(?:[0-9a-fA-F]{2}){96,}|(?:\\x[0-9a-fA-F]{2}){8,}`), "has a long encoded text, which people cannot read", nil},
}

// harvest is what names of parameters ask for that take in what is none of the tool's business.
var harvest = regexp.MustCompile(`(?i)(?:id_rsa|ssh_key|private_key_content|passwd|system_prompt|(?:chat|conversation)_(?:history|log)|side_?note|previous_messages)`)

// Tool looks at a tool. The findings name the place in File: "description", "inputSchema.properties.a".
func Tool(t sandbox.Tool) []sandbox.Finding {
	s := &scan{}
	s.text("title", t.Title)
	s.text("description", t.Description)
	if utf8.RuneCountInString(t.Description) > longText {
		s.add("long-description", sandbox.SeverityInfo, "description", fmt.Sprintf("has more than %d characters: few people read it to the end", longText))
	}
	for _, part := range []struct {
		name string
		raw  json.RawMessage
	}{{"inputSchema", t.Input}, {"outputSchema", t.Output}, {"annotations", t.Annotations}} {
		var v any
		if len(part.raw) > 0 && json.Unmarshal(part.raw, &v) == nil {
			s.value(part.name, v, 0)
		}
	}
	return s.found
}

type scan struct {
	texts int
	found []sandbox.Finding
}

// add notes a finding, each rule once for a place.
func (s *scan) add(rule, severity, place, message string) {
	if len(s.found) < maxFindings && !slices.ContainsFunc(s.found, func(f sandbox.Finding) bool { return f.Rule == rule && f.File == place }) {
		s.found = append(s.found, sandbox.Finding{Rule: rule, Severity: severity, File: place, Message: message})
	}
}

// value looks at all texts of a schema, the names of its properties too.
func (s *scan) value(place string, v any, depth int) {
	if depth > maxDepth {
		return
	}
	switch v := v.(type) {
	case string:
		s.text(place, v)
	case []any:
		for _, item := range v {
			s.value(place, item, depth+1)
		}
	case map[string]any:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			at := place + "." + cut(name, 64)
			if strings.HasSuffix(place, ".properties") && harvest.MatchString(name) {
				s.add("harvesting-parameter", sandbox.SeverityWarning, at, "is a parameter whose name asks for what is not the tool's business")
			}
			s.text(at, name)
			s.value(at, v[name], depth+1)
		}
	}
}

// text looks at one text.
func (s *scan) text(place, text string) {
	if text == "" || s.texts >= maxTexts {
		return
	}
	s.texts++
	if len(text) > maxText {
		text = text[:maxText]
	}
	s.characters(place, text)
	plain := fold(text)
	small := strings.ToLower(plain)
	for _, r := range rules {
		if r.words != nil && !slices.ContainsFunc(r.words, func(w string) bool { return strings.Contains(small, w) }) {
			continue // in a hundredth of the time
		}
		if r.words == nil && len(plain) < shortest {
			continue
		}
		if at := r.pattern.FindStringIndex(plain); at != nil {
			s.add(r.name, r.severity, place, r.message+": "+Excerpt(plain[at[0]:at[1]]))
		}
	}
}

// characters looks for characters that people do not see, or take for others.
func (s *scan) characters(place, text string) {
	run := 0 // of variation selectors: one follows an emoji, many carry a text
	for _, r := range text {
		switch {
		case r >= 0xE0000 && r <= 0xE007F:
			s.add("hidden-characters", sandbox.SeverityError, place, "has tag characters, which models read and people do not see: "+hidden(text))
		case r == 0x200B || r >= 0x2060 && r <= 0x2064 || r == 0xFEFF || r == 0x180E || r == 0x00AD:
			s.add("hidden-characters", sandbox.SeverityError, place, fmt.Sprintf("has a character without width (%U)", r))
		case r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x2069:
			s.add("bidi-control", sandbox.SeverityError, place, fmt.Sprintf("has a character that turns the direction of writing (%U): people see another order than the model", r))
		case unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r':
			s.add("control-characters", sandbox.SeverityError, place, fmt.Sprintf("has a control character (%U), by which terminals hide text", r))
		}
		if r >= 0xFE00 && r <= 0xFE0F || r >= 0xE0100 && r <= 0xE01EF {
			if run++; run == 3 {
				s.add("hidden-characters", sandbox.SeverityError, place, "has a run of variation selectors, which carries an invisible text")
			}
		} else {
			run = 0
		}
	}
	if word := mixedWord(text); word != "" {
		s.add("mixed-scripts", sandbox.SeverityWarning, place, "has a word of letters that look alike in different alphabets: "+Excerpt(word))
	}
}

// hidden returns what tag characters say.
func hidden(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r >= 0xE0020 && r <= 0xE007E {
			b.WriteRune(r - 0xE0000)
		}
	}
	return Excerpt(b.String())
}

// mixedWord returns a word with Latin letters and Cyrillic or Greek ones. The word must have enough of both
// to be no unit (µs).
func mixedWord(text string) string {
	if isASCII(text) {
		return ""
	}
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) }) {
		latin, other := 0, 0
		for _, r := range word {
			switch {
			case unicode.Is(unicode.Latin, r):
				latin++
			case unicode.Is(unicode.Cyrillic, r) || unicode.Is(unicode.Greek, r) && r != 'µ' && r != 'μ' && r != 'Ω':
				other++
			}
		}
		if latin >= 2 && other >= 1 {
			return word
		}
	}
	return ""
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// fold returns a text as a model would read it: without what is hidden in it, tags as letters, blanks as one blank, so that
// the rules see through both.
func fold(text string) string {
	if isASCII(text) {
		return text
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 0xE0020 && r <= 0xE007E:
			return r - 0xE0000
		case r >= 0xE0000 && r <= 0xE01EF || r == 0x200B || r >= 0x2060 && r <= 0x2069 || r >= 0x202A && r <= 0x202E || r == 0xFEFF || r == 0x00AD || r >= 0xFE00 && r <= 0xFE0F:
			return -1
		case r == '’':
			return '\''
		case r >= 0xFF01 && r <= 0xFF5E: // full width
			return r - 0xFEE0
		case unicode.IsSpace(r) && r != '\n':
			return ' '
		}
		return r
	}, text)
}

// Excerpt returns a part of a stranger's text in quotes, short, with everything that is not plain escaped.
func Excerpt(text string) string {
	return fmt.Sprintf("%+q", cut(text, maxExcerpt))
}

func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
