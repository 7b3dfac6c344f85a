package httpserver

import (
	"context"
	"encoding/json"
	"mime"
	"net/url"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// The Skills extension of MCP (SEP-2640): skills are listed with the digests of all their files, which
// are read as resources skill://<name>/<path>.
const (
	skillsExtension = "io.modelcontextprotocol/skills"
	skillScheme     = "skill://"
)

// skillTools are there for clients without the extension, when there are skills.
var skillTools = map[string]bool{"list_skills": true, "read_skill": true}

type mcpSkill struct {
	URI         string             `json:"uri"`
	Frontmatter json.RawMessage    `json:"frontmatter"`
	Resources   []mcpSkillResource `json:"resources"`
}

type mcpSkillResource struct {
	URI    string `json:"uri"`
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
}

type skillsListParams struct {
	mcp.ParamsBase
	Cursor string `json:"cursor,omitempty"`
}

type skillsGetParams struct {
	mcp.ParamsBase
	URI string `json:"uri"`
}

func (m *mcpCall) addSkills(srv *mcp.Server) {
	addTool(srv, m, "list_skills", "List the skills: instructions and scripts for particular tasks.", m.listSkills)
	addTool(srv, m, "read_skill", "Read SKILL.md or another text file of a skill.", m.readSkillFile)
	if m.scope.only != "" {
		return
	}
	// The two names are not those of the protocol itself: no error can come of it.
	_ = mcp.AddReceivingCustomMethod(srv, "skills/list", func(ctx context.Context, _ *mcp.ServerSession, _ *skillsListParams) (*rawResult, error) {
		list, err := m.skills(ctx)
		if err != nil {
			return nil, err
		}
		return m.skillsResult("skills", list)
	})
	_ = mcp.AddReceivingCustomMethod(srv, "skills/get", func(ctx context.Context, _ *mcp.ServerSession, p *skillsGetParams) (*rawResult, error) {
		list, err := m.skills(ctx)
		if err != nil {
			return nil, err
		}
		for _, sk := range list {
			if p != nil && sk.URI == p.URI {
				return m.skillsResult("skill", sk)
			}
		}
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "there is no such skill"}
	})
}

func (m *mcpCall) skillsResult(member string, v any) (*rawResult, error) {
	r, err := rawOf(map[string]any{member: v})
	if err != nil {
		return nil, err
	}
	return m.era(r, true), nil
}

func (m *mcpCall) skills(ctx context.Context) ([]mcpSkill, error) {
	list, err := m.s.o.Upstream.Skills(ctx, m.caller(ctx), m.scope.thread)
	if err != nil {
		return nil, m.wireError(ctx, err)
	}
	shown := make([]mcpSkill, 0, len(list))
	for _, sk := range list {
		s := mcpSkill{URI: skillURI(sk.Name, "SKILL.md"), Frontmatter: sk.Frontmatter, Resources: []mcpSkillResource{}}
		for _, f := range sk.Files {
			s.Resources = append(s.Resources, mcpSkillResource{URI: skillURI(sk.Name, f.Path), Digest: f.Digest, Size: f.Bytes})
		}
		shown = append(shown, s)
	}
	return shown, nil
}

// skillItems adds the SKILL.md of each skill to the list of resources.
func (m *mcpCall) skillItems(ctx context.Context, list []json.RawMessage) ([]json.RawMessage, error) {
	skills, err := m.s.o.Upstream.Skills(ctx, m.caller(ctx), m.scope.thread)
	if err != nil {
		return nil, err
	}
	for _, sk := range skills {
		raw, err := json.Marshal(&mcp.Resource{URI: skillURI(sk.Name, "SKILL.md"), Name: sk.Name, Description: sk.Description, MIMEType: "text/markdown"})
		if err != nil {
			return nil, err
		}
		list = append(list, raw)
	}
	return list, nil
}

func skillURI(name, file string) string {
	return (&url.URL{Scheme: "skill", Host: name, Path: "/" + file}).String()
}

// readSkill reads a file of a skill as a resource. Only files that a list shows can be read.
func (m *mcpCall) readSkill(ctx context.Context, uri string) (mcp.Result, error) {
	u, err := url.Parse(uri)
	if err != nil {
		return nil, m.resourceNotFound(uri)
	}
	data, err := m.s.o.Upstream.SkillFile(ctx, m.caller(ctx), m.scope.thread, u.Host, strings.TrimPrefix(u.Path, "/"))
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil, m.resourceNotFound(uri)
	}
	if err != nil {
		return nil, m.wireError(ctx, err)
	}
	c := &mcp.ResourceContents{URI: uri, MIMEType: mimeOf(u.Path, data)}
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

func mimeOf(name string, data []byte) string {
	switch t := mime.TypeByExtension(path.Ext(name)); {
	case strings.HasSuffix(name, ".md"):
		return "text/markdown"
	case t != "":
		return t
	case utf8.Valid(data):
		return "text/plain"
	}
	return "application/octet-stream"
}

// listedSkill is what list_skills says of a skill.
type listedSkill struct {
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Location    string   `json:"location"`
	Files       []string `json:"files"`
}

func (m *mcpCall) listSkills(ctx context.Context, _ struct{}) (any, error) {
	list, err := m.s.o.Upstream.Skills(ctx, m.caller(ctx), m.scope.thread)
	if err != nil {
		return nil, err
	}
	shown := []listedSkill{}
	for _, sk := range list {
		l := listedSkill{Name: sk.Name, Description: sk.Description, Location: sk.Location, Files: []string{}}
		for _, f := range sk.Files {
			l.Files = append(l.Files, f.Path)
		}
		shown = append(shown, l)
	}
	return map[string]any{"skills": shown}, nil
}

type mcpReadSkill struct {
	Name string `json:"name"`
	File string `json:"file,omitempty" jsonschema:"path in the skill's folder; SKILL.md when absent"`
}

func (m *mcpCall) readSkillFile(ctx context.Context, in mcpReadSkill) (any, error) {
	if in.File == "" {
		in.File = "SKILL.md"
	}
	data, err := m.s.o.Upstream.SkillFile(ctx, m.caller(ctx), m.scope.thread, in.Name, in.File)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(data) {
		return nil, sandbox.Errorf(sandbox.NotSupported, "%.200q is not text; use it in the sandbox", in.File)
	}
	return string(data), nil
}
