package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/prompt"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/service"
)

// The Skills extension of MCP (SEP-2640): skills are listed with the digests of all their files, which
// are read as resources skill://<name>/<path>, and skill://plugin@<plugin>/<name>/<path> where a plugin's skill
// shares its name with another one.
const (
	skillsExtension = "io.modelcontextprotocol/skills"
	skillScheme     = "skill://"
)

// skills are the tools, methods and resources of the thread's skills.
type skills struct{ *scoped }

// skillTools are there for clients without the extension, when there are skills.
var skillTools = map[string]bool{"activate_skill": true, "read_skill_file": true, "search_skills": true, runSkillTool: true}

// runSkillTool runs scripts of skills. As in the prompt, its schema does not repeat the names of the skills.
const runSkillTool = "run_skill"

// callSkillTool calls the tools of a skill's channel. It is there when a skill of the thread has one.
const callSkillTool = "call_skill_tool"

type skillView struct {
	URI         string          `json:"uri"`
	Frontmatter json.RawMessage `json:"frontmatter"`
	Resources   []skillResource `json:"resources"`
}

type skillResource struct {
	URI    string `json:"uri"`
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
}

type skillsListParams struct {
	sdk.ParamsBase
	Cursor string `json:"cursor,omitempty"`
}

type skillsGetParams struct {
	sdk.ParamsBase
	URI string `json:"uri"`
}

type directoryReadParams struct {
	sdk.ParamsBase
	URI    string `json:"uri"`
	Cursor string `json:"cursor,omitempty"`
}

func (m *skills) add(srv *sdk.Server) {
	addTool(srv, m.scoped, "activate_skill", "Get the instructions of a skill, with its folder and the list of its files.", m.activateSkill)
	addTool(srv, m.scoped, "read_skill_file", "Read a text file of a skill. For a binary file the result is its path in the sandbox.", m.readSkillFile)
	addTool(srv, m.scoped, "search_skills", "Find skills by what they do: at most 15, best first. An empty query returns the first of the list.", m.searchSkills)
	addTool(srv, m.scoped, callSkillTool, "Call a tool that belongs to an active skill. activate_skill shows which there are.", func(context.Context, callSkillForm) (any, error) {
		return nil, sandbox.Errorf(sandbox.Internal, "methods.callOfSkill answers")
	})
	if m.scope.Only != "" {
		return
	}
	// The names are not those of the protocol itself: no error can come of it.
	_ = sdk.AddReceivingCustomMethod(srv, "skills/list", func(ctx context.Context, _ *sdk.ServerSession, p *skillsListParams) (*rawResult, error) {
		return m.skillsList(ctx, p)
	})
	_ = sdk.AddReceivingCustomMethod(srv, "skills/get", func(ctx context.Context, _ *sdk.ServerSession, p *skillsGetParams) (*rawResult, error) {
		return m.skillsGet(ctx, p)
	})
	_ = sdk.AddReceivingCustomMethod(srv, "resources/directory/read", func(ctx context.Context, _ *sdk.ServerSession, p *directoryReadParams) (*rawResult, error) {
		return m.readDirectory(ctx, p)
	})
}

// skillsPage is how many skills, with all of their files, one page of skills/list has.
const skillsPage = 100

func (m *skills) skillsList(ctx context.Context, p *skillsListParams) (*rawResult, error) {
	list, err := m.o.ThreadSkills.ThreadSkills(ctx, m.caller(ctx), m.scope.Thread)
	if err != nil {
		return nil, m.wireError(ctx, err)
	}
	from := 0
	if p != nil && p.Cursor != "" {
		from = behind(list, p.Cursor)
	}
	result := map[string]any{}
	shown := make([]skillView, 0, min(len(list)-from, skillsPage))
	for _, sk := range list[from:] {
		if len(shown) == skillsPage {
			last := from + skillsPage - 1
			result["nextCursor"] = strconv.Itoa(last) + " " + list[last].Name
			break
		}
		one, err := m.skill(ctx, sk.Name)
		if sandbox.KindOf(err) == sandbox.NotFound { // gone meanwhile
			continue
		}
		if err != nil {
			return nil, m.wireError(ctx, err)
		}
		shown = append(shown, one)
	}
	result["skills"] = shown
	return m.skillsResult(result)
}

// behind returns where a list goes on. The cursor is the place and the name of the last skill that was listed: skills may
// come and go between two pages, and one that has gone has left its place to the next.
func behind(list []sandbox.Skill, cursor string) int {
	place, name, _ := strings.Cut(cursor, " ")
	if i := slices.IndexFunc(list, func(sk sandbox.Skill) bool { return sk.Name == name }); i >= 0 {
		return i + 1
	}
	at, err := strconv.Atoi(place)
	if err != nil {
		return 0
	}
	return max(0, min(at, len(list)))
}

func (m *skills) skillsGet(ctx context.Context, p *skillsGetParams) (*rawResult, error) {
	if p != nil {
		name, file, ok := splitSkillURI(p.URI)
		if ok && file == "SKILL.md" {
			sk, err := m.skill(ctx, name)
			if err == nil && sk.URI == p.URI {
				return m.skillsResult(map[string]any{"skill": sk})
			}
			if err != nil && sandbox.KindOf(err) != sandbox.NotFound {
				return nil, m.wireError(ctx, err)
			}
		}
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "there is no such skill"}
}

func (m *skills) skillsResult(members map[string]any) (*rawResult, error) {
	r, err := rawOf(members)
	if err != nil {
		return nil, err
	}
	return m.era(r, true), nil
}

// skill is a skill of the thread with all of its files.
func (m *skills) skill(ctx context.Context, name string) (skillView, error) {
	sk, err := m.o.ThreadSkills.SkillManifest(ctx, m.caller(ctx), m.scope.Thread, name)
	if err != nil {
		return skillView{}, err
	}
	s := skillView{URI: skillURI(sk.Name, "SKILL.md"), Frontmatter: sk.Frontmatter, Resources: []skillResource{}}
	for _, f := range sk.Files {
		s.Resources = append(s.Resources, skillResource{URI: skillURI(sk.Name, f.Path), Digest: f.Digest, Size: f.Bytes})
	}
	return s, nil
}

// splitSkillURI takes a URI of a skill's file or folder apart; file is "" for the skill's own folder.
func splitSkillURI(uri string) (name, file string, ok bool) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "skill" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return "", "", false
	}
	file = strings.Trim(u.Path, "/")
	if u.User == nil {
		return u.Host, file, true
	}
	if u.User.String() != pluginPrefix {
		return "", "", false
	}
	name, file, _ = strings.Cut(file, "/")
	return u.Host + ":" + name, file, name != ""
}

// readDirectory lists what is directly in a folder of a skill.
func (m *skills) readDirectory(ctx context.Context, p *directoryReadParams) (*rawResult, error) {
	none := &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "there is no such directory"}
	if p == nil {
		return nil, none
	}
	name, dir, ok := splitSkillURI(p.URI)
	if !ok {
		return nil, none
	}
	sk, err := m.o.ThreadSkills.SkillManifest(ctx, m.caller(ctx), m.scope.Thread, name)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil, none
	}
	if err != nil {
		return nil, m.wireError(ctx, err)
	}
	children := childrenOf(sk, dir)
	if children == nil {
		return nil, none
	}
	return m.skillsResult(map[string]any{"resources": children}) // a skill has at most some hundred files: one page
}

// childrenOf returns the files and folders directly in a folder of a skill, nil when it is none.
func childrenOf(sk sandbox.SkillManifest, dir string) []*sdk.Resource {
	var list []*sdk.Resource
	seen := map[string]bool{}
	for _, f := range sk.Files {
		rest := f.Path
		if dir != "" {
			var ok bool
			if rest, ok = strings.CutPrefix(f.Path, dir+"/"); !ok {
				continue
			}
		}
		child, _, folder := strings.Cut(rest, "/")
		if seen[child] {
			continue
		}
		seen[child] = true
		r := &sdk.Resource{URI: skillURI(sk.Name, path.Join(dir, child)), Name: child, MIMEType: "inode/directory"}
		if !folder {
			r.MIMEType, r.Size = service.MIMEOf(child, nil), f.Bytes
		}
		list = append(list, r)
	}
	return list
}

// items adds the SKILL.md of each skill to the list of resources.
func (m *skills) items(ctx context.Context, list []json.RawMessage) ([]json.RawMessage, error) {
	skills, err := m.o.ThreadSkills.ThreadSkills(ctx, m.caller(ctx), m.scope.Thread)
	if err != nil {
		return nil, err
	}
	for _, sk := range skills {
		if sk.Hidden {
			continue
		}
		raw, err := json.Marshal(&sdk.Resource{URI: skillURI(sk.Name, "SKILL.md"), Name: sk.Name, Description: sk.Description, MIMEType: "text/markdown"})
		if err != nil {
			return nil, err
		}
		list = append(list, raw)
	}
	return list, nil
}

// pluginPrefix is before the name of a plugin in the URI of a skill that has to be told by it: the last segment before
// SKILL.md has to be the name in the frontmatter, and no name of a skill has an "@".
const pluginPrefix = "plugin"

func skillURI(name, file string) string {
	if plugin, own, ok := strings.Cut(name, ":"); ok {
		return (&url.URL{Scheme: "skill", User: url.User(pluginPrefix), Host: plugin, Path: "/" + own + "/" + file}).String()
	}
	return (&url.URL{Scheme: "skill", Host: name, Path: "/" + file}).String()
}

// read reads a file of a skill as a resource. Only files that a list shows can be read.
func (m *skills) read(ctx context.Context, uri string) (sdk.Result, error) {
	name, file, ok := splitSkillURI(uri)
	if !ok {
		return nil, m.resourceNotFound(uri)
	}
	data, err := m.o.ThreadSkills.SkillFile(ctx, m.caller(ctx), m.scope.Thread, name, file)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil, m.resourceNotFound(uri)
	}
	if err != nil {
		return nil, m.wireError(ctx, err)
	}
	c := &sdk.ResourceContents{URI: uri, MIMEType: service.MIMEOf(file, data)}
	if utf8.Valid(data) {
		c.Text = string(data)
	} else {
		c.Blob = data
	}
	r, err := rawOf(map[string]any{"contents": []any{c}})
	if err != nil {
		return nil, err
	}
	return m.era(r, true), nil
}

// namedSkills puts the names of the thread's skills into the schema of a tool that takes one.
func namedSkills(raw json.RawMessage, names []string) (json.RawMessage, error) {
	var t map[string]json.RawMessage
	var schema map[string]json.RawMessage
	var properties map[string]any
	if err := json.Unmarshal(raw, &t); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(t["inputSchema"], &schema); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(schema["properties"], &properties); err != nil {
		return nil, err
	}
	for _, parameter := range []string{"name", "skill"} {
		if _, ok := properties[parameter]; ok {
			properties[parameter] = prompt.SkillName(names)
		}
	}
	var err error
	if schema["properties"], err = json.Marshal(properties); err != nil {
		return nil, err
	}
	if t["inputSchema"], err = json.Marshal(schema); err != nil {
		return nil, err
	}
	return json.Marshal(t)
}

type activateIn struct {
	Name string `json:"name"`
}

func (m *skills) activateSkill(ctx context.Context, in activateIn) (any, error) {
	a, err := m.o.ThreadSkills.ActivateSkill(ctx, m.caller(ctx), m.scope.Thread, in.Name)
	if err != nil {
		return nil, err
	}
	return prompt.Activated(a), nil
}

type readSkillIn struct {
	Skill string `json:"skill"`
	Path  string `json:"path" jsonschema:"relative to the skill's folder"`
}

func (m *skills) readSkillFile(ctx context.Context, in readSkillIn) (any, error) {
	f, err := service.ReadSkillFile(ctx, m.o.ThreadSkills, m.caller(ctx), m.scope.Thread, in.Skill, in.Path)
	if err != nil {
		return nil, err
	}
	if f.Text == nil {
		return fmt.Sprintf("%s is %s of %d bytes; use it in the sandbox: %s", f.Path, f.MIME, f.Bytes, f.Location), nil
	}
	return *f.Text, nil
}

// callSkillForm is the input of call_skill_tool, as its schema shows it, and callSkillIn as it is read.
type (
	callSkillForm struct {
		Skill string         `json:"skill"`
		Tool  string         `json:"tool" jsonschema:"its name within the skill"`
		Input map[string]any `json:"input" jsonschema:"as the input schema of the tool says"`
	}
	callSkillIn struct {
		Skill string          `json:"skill"`
		Tool  string          `json:"tool"`
		Input json.RawMessage `json:"input"`
	}
)

type searchSkillsIn struct {
	Query string `json:"query,omitempty"`
}

func (m *skills) searchSkills(ctx context.Context, in searchSkillsIn) (any, error) {
	found, n, err := m.o.ThreadSkills.SearchSkills(ctx, m.caller(ctx), m.scope.Thread, in.Query)
	if err != nil {
		return nil, err
	}
	return service.FoundSkills{Query: in.Query, MatchCount: n, Skills: found}, nil
}
