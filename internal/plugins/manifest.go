package plugins

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/platform/oneline"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// claudeKeys are the top-level keys of .claude-plugin/plugin.json, agentKeys those of Agent Plugins 1.0.
var (
	claudeKeys = []string{
		"$schema", "name", "displayName", "version", "description", "author", "homepage", "repository", "license", "keywords", "metadata", "defaultEnabled",
		"skills", "commands", "agents", "workflows", "outputStyles", "hooks", "mcpServers", "lspServers", "experimental", "userConfig", "channels", "dependencies",
	}
	agentKeys = []string{
		"$schema", "name", "displayName", "version", "description", "author", "homepage", "repository", "license", "keywords", "extensions",
	}
)

// describe takes the fields that describe the plugin.
func (l *loader) describe() {
	p := l.p
	known := claudeKeys
	if p.Format == FormatAgent {
		known = agentKeys
		if _, ok := l.fields["$schema"]; !ok {
			l.add("schema-missing", sandbox.SeverityWarning, l.manifest, "Agent Plugins wants $schema")
		}
	}
	for _, key := range sorted(l.fields) {
		if !slices.Contains(known, key) {
			l.add("unknown-key", sandbox.SeverityWarning, l.manifest, "%.80q is no key of this format; it is ignored", key)
		}
	}
	p.Name = l.text("name", maxDescriptor)
	if p.Name == "" && l.manifest != "" {
		l.add("name-missing", sandbox.SeverityWarning, l.manifest, "there is no name; that of its folder or source is taken")
	}
	p.DisplayName = l.text("displayName", maxDescriptor)
	p.Version = l.text("version", maxDescriptor)
	p.Description = l.text("description", maxText)
	p.Homepage = l.link("homepage")
	p.Repository = l.link("repository")
	p.License = l.text("license", maxDescriptor)
	p.Author = l.author()
	p.Keywords = l.texts("keywords", maxKeywords)
	if raw, ok := l.fields["defaultEnabled"]; ok && p.Format == FormatClaude {
		var on bool
		if json.Unmarshal(raw, &on) != nil {
			l.wrongType("defaultEnabled", "true or false")
		} else {
			p.Disabled = !on
		}
	}
	if p.Format == FormatClaude {
		l.options()
	}
}

func (l *loader) wrongType(key, want string) {
	l.add("wrong-type", sandbox.SeverityWarning, l.manifest, "%.80s should be %s; it is ignored", key, want)
}

// text returns a field that is text, made fit to be shown.
func (l *loader) text(key string, most int) string {
	raw, ok := l.fields[key]
	if !ok || string(raw) == "null" {
		return ""
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		l.wrongType(key, "text")
		return ""
	}
	return oneline.Of(s, most)
}

// link returns a field that is an address; the URL of an object {url}, which npm writes for repository, counts, too.
func (l *loader) link(key string) string {
	var o struct {
		URL string `json:"url"`
	}
	if raw, ok := l.fields[key]; ok && len(raw) > 0 && raw[0] == '{' && json.Unmarshal(raw, &o) == nil {
		return oneline.Of(o.URL, maxText)
	}
	return l.text(key, maxText)
}

func (l *loader) author() string {
	var o struct {
		Name string `json:"name"`
	}
	if raw, ok := l.fields["author"]; ok && len(raw) > 0 && raw[0] == '{' {
		if json.Unmarshal(raw, &o) != nil {
			l.wrongType("author", "an object with name, email, url")
		}
		return oneline.Of(o.Name, maxDescriptor)
	}
	return l.text("author", maxDescriptor)
}

// texts returns a field that is a list of texts.
func (l *loader) texts(key string, most int) []string {
	raw, ok := l.fields[key]
	if !ok || string(raw) == "null" {
		return nil
	}
	var list []string
	if json.Unmarshal(raw, &list) != nil {
		l.wrongType(key, "a list of texts")
		return nil
	}
	if len(list) > most {
		l.add("too-many", sandbox.SeverityWarning, l.manifest, "%s: %d entries, at most %d; the rest is ignored", key, len(list), most)
		list = list[:most]
	}
	for i, s := range list {
		list[i] = oneline.Of(s, maxDescriptor)
	}
	return list
}

// paths returns a field that is a path or a list of paths, as clean paths within the plugin.
func (l *loader) paths(key string) []string {
	raw := l.fields[key]
	var list []string
	var one string
	switch {
	case json.Unmarshal(raw, &one) == nil:
		list = []string{one}
	case json.Unmarshal(raw, &list) != nil:
		l.add("wrong-type", sandbox.SeverityError, l.manifest, "%s should be a path or a list of paths; it is ignored", key)
		return nil
	}
	if len(list) > maxPaths {
		l.add("too-many", sandbox.SeverityError, l.manifest, "%s: %d paths, at most %d; the rest is ignored", key, len(list), maxPaths)
		list = list[:maxPaths]
	}
	var clean []string
	for _, p := range list {
		if c, ok := l.inside(key, p); ok {
			clean = append(clean, c)
		}
	}
	return clean
}

var (
	optionKey   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)
	optionTypes = []string{"string", "number", "boolean", "directory", "file"}
)

// options reads userConfig.
func (l *loader) options() {
	raw, ok := l.fields["userConfig"]
	if !ok {
		return
	}
	var all map[string]struct {
		Type        string `json:"type"`
		Title       string `json:"title"`
		Description string `json:"description"`
		Required    bool   `json:"required"`
		Sensitive   bool   `json:"sensitive"`
		Default     any    `json:"default"`
	}
	if json.Unmarshal(raw, &all) != nil {
		l.add("wrong-type", sandbox.SeverityError, l.manifest, "userConfig should be an object of {type, title, description}; it is ignored")
		return
	}
	for _, key := range sorted(all) {
		o := all[key]
		switch {
		case len(l.p.Options) == maxOptions:
			l.add("too-many", sandbox.SeverityError, l.manifest, "userConfig: more than %d keys; the rest is ignored", maxOptions)
			return
		case !optionKey.MatchString(key):
			l.add("option", sandbox.SeverityError, l.manifest, "userConfig: %.80q is no name of a value; it is ignored", key)
			continue
		case !slices.Contains(optionTypes, o.Type):
			l.add("option", sandbox.SeverityWarning, l.manifest, "userConfig.%s: the type %.40q is none of %s; it is taken as string", key, o.Type, strings.Join(optionTypes, ", "))
			o.Type = "string"
		}
		if o.Default != nil && !fits(o.Type, o.Default) {
			l.add("option", sandbox.SeverityWarning, l.manifest, "userConfig.%s: the default is no %s; it is ignored", key, o.Type)
			o.Default = nil
		}
		l.p.Options = append(l.p.Options, sandbox.PluginOption{
			Key: key, Type: o.Type, Title: oneline.Of(o.Title, maxDescriptor), Description: oneline.Of(o.Description, maxText),
			Required: o.Required, Sensitive: o.Sensitive, Default: o.Default,
		})
	}
}

// variables adds what the MCP servers name as ${KEY}. It may be a secret, and mostly is one.
func (l *loader) variables() {
	if l.p.Format != FormatClaude {
		return
	}
	for _, s := range l.p.Servers {
		for _, text := range s.texts(l.p.Format) {
			for _, m := range reference.FindAllStringSubmatch(text, -1) {
				key, folder := m[1], rootNames[m[1]] != ""
				if folder || !optionKey.MatchString(key) {
					continue
				}
				if i := slices.IndexFunc(l.p.Options, func(o sandbox.PluginOption) bool { return o.Key == key }); i >= 0 {
					o := &l.p.Options[i]
					o.Required = o.Required || o.Variable && m[2] == ""
					o.Variable = true
					continue
				}
				if len(l.p.Options) == maxOptions {
					l.add("too-many", sandbox.SeverityError, s.File, "its MCP servers name more values than %d; the rest cannot be set", maxOptions)
					return
				}
				o := sandbox.PluginOption{Key: key, Type: "string", Variable: true, Sensitive: true, Required: m[2] == "", Description: oneline.Of("${"+key+"} of its MCP server "+s.Name, maxText)}
				if m[2] != "" {
					o.Default = strings.TrimPrefix(m[2], ":-")
				}
				l.p.Options = append(l.p.Options, o)
			}
		}
	}
}

// fits reports whether a decoded JSON value is one of an option's type.
func fits(kind string, v any) bool {
	switch x := v.(type) {
	case string:
		return kind != "number" && kind != "boolean" && len(x) <= maxValue
	case float64:
		return kind == "number"
	case bool:
		return kind == "boolean"
	}
	return false
}

// maxValue is the most bytes of a user's value.
const maxValue = 16 << 10

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
