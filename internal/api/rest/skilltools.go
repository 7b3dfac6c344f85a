package rest

import (
	"context"
	"net/http"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/prompt"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/service"
)

// skillToolRoutes are the routes of the skills of a thread.
type skillToolRoutes struct {
	skills service.ThreadSkills
}

// virtualBody is the body of POST /api/threads/{t}/skills.
type virtualBody struct {
	Name        string            `json:"name" minLength:"1" maxLength:"64"`
	Description string            `json:"description" minLength:"1" maxLength:"1024" doc:"What it does and when to use it"`
	Body        string            `json:"body" doc:"The Markdown of SKILL.md, without frontmatter"`
	Files       map[string]string `json:"files,omitempty" doc:"Further files: their texts by path, relative to the skill's folder"`
}

// virtualSkill is a virtual skill as it is answered.
type virtualSkill struct {
	Name        string            `json:"name"`
	Description string            `json:"description"`
	Category    string            `json:"category"`
	Location    string            `json:"location"`
	Digest      string            `json:"digest"`
	Findings    []sandbox.Finding `json:"findings"`
}

// activeSkill is the answer of an activation.
type activeSkill struct {
	Name      string   `json:"name"`
	Content   string   `json:"content" doc:"The instructions between tags, with the folder and the files of the skill: ready for the model"`
	Location  string   `json:"location" doc:"Of SKILL.md, in the sandbox"`
	Resources []string `json:"resources" doc:"Its other files, relative to the folder of SKILL.md"`
}

// ThreadSkillIn names a skill of a thread. The parameter is named as in the route of the runs.
type ThreadSkillIn struct {
	route.ThreadIn
	Skill string `path:"skill" maxLength:"256" doc:"Name of the skill; one of a plugin also as plugin:name"`
}

func (s skillToolRoutes) add(api *route.API) {
	const list, one = "/api/threads/{thread}/skills", "/api/threads/{thread}/skills/{skill}"
	route.Register(api, route.On(http.MethodGet, list, "searchSkills", route.TagRun, route.Agents.At(route.Owner), "Find skills of the thread by what they do; without a query, the first by name"), s.searchSkills)
	op := route.On(http.MethodPost, list, "addVirtualSkill", route.TagRun, route.Agents.At(route.Holder), "Give the thread a skill that is only in memory; its sandbox shows it at once")
	op.DefaultStatus = http.StatusCreated
	route.Register(api, op, s.addVirtualSkill)
	route.Register(api, route.On(http.MethodDelete, one, "removeVirtualSkill", route.TagRun, route.Agents.At(route.Holder), "Take a virtual skill away again"),
		func(ctx context.Context, in *ThreadSkillIn) (*struct{}, error) {
			return nil, s.skills.RemoveVirtualSkill(ctx, exchange.CallerOf(ctx), in.Thread, in.Skill)
		})
	route.Register(api, route.On(http.MethodPost, one+"/activate", "activateSkill", route.TagRun, route.Agents.At(route.Holder), "The instructions of a skill, for the model"), s.activateSkill)
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
) (*route.Body[virtualSkill], error) {
	sk, err := s.skills.AddVirtualSkill(ctx, exchange.CallerOf(ctx), in.Thread, sandbox.VirtualSkill{
		Name: in.Body.Name, Description: in.Body.Description, Body: in.Body.Body, Files: in.Body.Files,
	})
	if err != nil {
		return nil, err
	}
	v := virtualSkill{Name: sk.Name, Description: sk.Description, Category: sk.Category, Location: sk.Location, Digest: sk.Digest, Findings: sk.Findings}
	if v.Findings == nil {
		v.Findings = []sandbox.Finding{}
	}
	return route.BodyOf(v), nil
}

func (s skillToolRoutes) activateSkill(ctx context.Context, in *ThreadSkillIn) (*route.Body[activeSkill], error) {
	a, err := s.skills.ActivateSkill(ctx, exchange.CallerOf(ctx), in.Thread, in.Skill)
	if err != nil {
		return nil, err
	}
	return route.BodyOf(activeSkill{Name: a.Name, Content: prompt.Activated(a.Name, a.Location, a.Body, a.Resources), Location: a.Location, Resources: a.Resources}), nil
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
