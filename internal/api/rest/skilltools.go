package rest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/prompt"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/service"
)

// skillToolRoutes are the routes of the skills of a thread.
type skillToolRoutes struct {
	skills   service.ThreadSkills
	channels service.SkillChannels
	tools    service.Tools
}

// virtualBody is the body of POST /api/threads/{t}/skills.
type virtualBody struct {
	Name        string            `json:"name" minLength:"1" maxLength:"64"`
	Description string            `json:"description,omitempty" maxLength:"1024" doc:"What it does and when to use it"`
	Body        string            `json:"body,omitempty" doc:"The Markdown of SKILL.md, without frontmatter"`
	Files       map[string]string `json:"files,omitempty" doc:"Further files: their texts by path, relative to the skill's folder. SKILL.md is one of them when description and body are absent"`
	BinaryFiles map[string]string `json:"binary_files,omitempty" doc:"Further files that are no texts: base64 by path"`
	Channel     bool              `json:"channel,omitempty" doc:"Its tools are functions of a program, which provides them with the key of the answer. The name has to be that of a pack: at most 63 of a-z 0-9 -"`
	Replace     bool              `json:"replace,omitempty" doc:"In place of a skill of that name that the thread was given"`
}

// skill decodes a body.
func (b *virtualBody) skill() (sandbox.VirtualSkill, error) {
	sk := sandbox.VirtualSkill{Name: b.Name, Description: b.Description, Body: b.Body, Files: b.Files, Replace: b.Replace}
	for p, text := range b.BinaryFiles {
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return sk, sandbox.InvalidField("binary_files", "%.200q is not base64", p)
		}
		if _, twice := sk.Files[p]; twice {
			return sk, sandbox.InvalidField("binary_files", "%.200q is in files, too", p)
		}
		if sk.Files == nil {
			sk.Files = map[string]string{}
		}
		sk.Files[p] = string(data)
	}
	return sk, nil
}

// virtualSkill is a virtual skill as it is answered.
type virtualSkill struct {
	Name        string            `json:"name"`
	Description string            `json:"description"`
	Category    string            `json:"category"`
	Location    string            `json:"location"`
	Digest      string            `json:"digest"`
	Findings    []sandbox.Finding `json:"findings"`
	Channel     *sandbox.SkillKey `json:"channel,omitempty" doc:"With channel: by what a program provides the tools"`
}

// addedSkill is the answer to a virtual skill.
type addedSkill struct {
	CacheControl string `header:"Cache-Control"`
	Body         virtualSkill
}

// activeSkill is the answer of an activation.
type activeSkill struct {
	Name         string      `json:"name"`
	Content      string      `json:"content" doc:"The instructions between tags, with the folder and the files of the skill: ready for the model"`
	Location     string      `json:"location" doc:"Of SKILL.md, in the sandbox"`
	Resources    []string    `json:"resources" doc:"Its other files, relative to the folder of SKILL.md"`
	Tools        []skillTool `json:"tools,omitempty" doc:"Those of its channel, which can be called from now on"`
	AllowedTools []string    `json:"allowed_tools" doc:"allowed-tools of SKILL.md, one entry a tool: a pre-approval. Rules of the policy can make a limit of it"`
}

// skillTool is a tool of a skill's channel.
type skillTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema"`
}

// ThreadSkillIn names a skill of a thread. The parameter is named as in the route of the runs.
type ThreadSkillIn struct {
	route.ThreadIn
	Skill string `path:"skill" maxLength:"256" doc:"Name of the skill; one of a plugin also as plugin:name"`
}

func (s skillToolRoutes) add(api *route.API) {
	const list, one = "/api/threads/{thread}/skills", "/api/threads/{thread}/skills/{skill}"
	route.Register(api, route.On(http.MethodGet, list, "searchSkills", route.TagRun, route.Agents.At(route.Owner), "Find skills of the thread by what they do; without a query, the first of its list"), s.searchSkills)
	op := route.On(http.MethodPost, list, "addVirtualSkill", route.TagRun, route.Agents.At(route.Holder), "Give the thread a skill that is only in memory; its sandbox shows it at once")
	op.DefaultStatus = http.StatusCreated
	route.Register(api, op, s.addVirtualSkill)
	route.Register(api, route.On(http.MethodDelete, one, "removeVirtualSkill", route.TagRun, route.Agents.At(route.Holder), "Take a virtual skill away again"),
		func(ctx context.Context, in *ThreadSkillIn) (*struct{}, error) {
			return nil, s.skills.RemoveVirtualSkill(ctx, exchange.CallerOf(ctx), in.Thread, in.Skill)
		})
	route.Register(api, route.On(http.MethodPost, one+"/activate", "activateSkill", route.TagRun, route.Agents.At(route.Holder), "The instructions of a skill, for the model"), s.activateSkill)
	route.Register(api, route.On(http.MethodPost, one+"/tools/{tool}", "callSkillTool", route.TagTools, route.Agents.At(route.Holder), "Call a tool of an active skill's channel"), s.callTool)
	route.Register(api, route.On(http.MethodGet, one+"/files", "readSkillFile", route.TagRun, route.Agents.At(route.Owner), "One file of a skill; what is not text is given by its place in the sandbox"), s.skillFile)
}

func (s skillToolRoutes) searchSkills(ctx context.Context, in *struct {
	route.ThreadIn
	Query string `query:"query" maxLength:"1000"`
},
) (*route.Body[service.FoundSkills], error) {
	found, n, err := s.skills.SearchSkills(ctx, exchange.CallerOf(ctx), in.Thread, in.Query)
	if err != nil {
		return nil, err
	}
	return route.BodyOf(service.FoundSkills{Query: in.Query, MatchCount: n, Skills: found}), nil
}

func (s skillToolRoutes) addVirtualSkill(ctx context.Context, in *struct {
	route.ThreadIn
	Body virtualBody
},
) (*addedSkill, error) {
	given, err := in.Body.skill()
	if err != nil {
		return nil, err
	}
	var sk sandbox.Skill
	var key *sandbox.SkillKey
	if in.Body.Channel {
		key = &sandbox.SkillKey{}
		sk, *key, err = s.channels.AttachSkill(ctx, exchange.CallerOf(ctx), in.Thread, given)
	} else {
		sk, err = s.skills.AddVirtualSkill(ctx, exchange.CallerOf(ctx), in.Thread, given)
	}
	if err != nil {
		return nil, err
	}
	v := virtualSkill{Name: sk.Name, Description: sk.Description, Category: sk.Category, Location: sk.Location, Digest: sk.Digest, Findings: sk.Findings, Channel: key}
	if v.Findings == nil {
		v.Findings = []sandbox.Finding{}
	}
	added := &addedSkill{Body: v}
	if key != nil {
		added.CacheControl = exchange.NoStore // nor is it kept for a request that is repeated
	}
	return added, nil
}

func (s skillToolRoutes) activateSkill(ctx context.Context, in *ThreadSkillIn) (*route.Body[activeSkill], error) {
	a, err := s.skills.ActivateSkill(ctx, exchange.CallerOf(ctx), in.Thread, in.Skill)
	if err != nil {
		return nil, err
	}
	out := activeSkill{
		Name: a.Name, Content: prompt.Activated(a), Location: a.Location, Resources: a.Resources,
		AllowedTools: append([]string{}, a.AllowedTools...),
	}
	for _, t := range a.Tools {
		out.Tools = append(out.Tools, skillTool{t.Name, t.Description, t.Input})
	}
	return route.BodyOf(out), nil
}

func (s skillToolRoutes) callTool(ctx context.Context, in *struct {
	ThreadSkillIn
	Tool string          `path:"tool" maxLength:"64" doc:"Name of the tool within the skill"`
	Body json.RawMessage `doc:"The tool's arguments, an object"`
},
) (*route.Body[sandbox.ToolResult], error) {
	if len(in.Body) == 0 || in.Body[0] != '{' {
		return nil, sandbox.InvalidField("body", "has to be an object")
	}
	res, err := callTool(ctx, s.tools, in.Thread, sandbox.ToolRef{Server: sandbox.SkillServer(in.Skill), Name: in.Tool}, in.Body)
	if err != nil {
		return nil, err
	}
	return route.BodyOf(res), nil
}

func (s skillToolRoutes) skillFile(ctx context.Context, in *struct {
	ThreadSkillIn
	Path string `query:"path" required:"true" minLength:"1" maxLength:"1024" doc:"Relative to the skill's folder: SKILL.md, scripts/run.py"`
},
) (*route.Body[service.SkillFile], error) {
	f, err := service.ReadSkillFile(ctx, s.skills, exchange.CallerOf(ctx), in.Thread, in.Skill, in.Path)
	if err != nil {
		return nil, err
	}
	return route.BodyOf(f), nil
}
