package rest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/service"
)

// skillRoutes are the routes of skills.
type skillRoutes struct {
	skills   service.Skills
	runnable func(ctx context.Context, c sandbox.Caller, sk sandbox.Skill, template string) (sandbox.Runnable, error) // nil: unknown
}

// maxSkillText bounds the SKILL.md that a caller sends.
const maxSkillText = 1 << 20

// skillView is a skill as the API shows it.
type skillView struct {
	Name          string            `json:"name"`
	Description   string            `json:"description"`
	License       string            `json:"license"`
	Compatibility string            `json:"compatibility" doc:"What it needs, for people; as SKILL.md says"`
	AllowedTools  []string          `json:"allowed_tools" doc:"allowed-tools of SKILL.md, one entry a tool: a pre-approval. Rules of the policy can make a limit of it"`
	Metadata      map[string]any    `json:"metadata" doc:"metadata of SKILL.md"`
	Category      string            `json:"category" doc:"public, custom, virtual, or plugin:<name>"`
	Enabled       bool              `json:"enabled"`
	Location      string            `json:"location" doc:"Of SKILL.md, in a sandbox where the skill is on"`
	Digest        string            `json:"digest" doc:"Of all files; empty when they cannot be read"`
	Trusted       bool              `json:"trusted" doc:"Its scripts may run without an approval"`
	Template      string            `json:"template" doc:"Of the sandbox where its scripts run; empty: that of the thread"`
	Findings      []sandbox.Finding `json:"findings"`
	Runnable      sandbox.Runnable  `json:"runnable"`
	Text          *string           `json:"text,omitempty" doc:"SKILL.md, to one who asked with text=true. Absent when it cannot be read, is no UTF-8, or has more than 1 MiB"`
}

// skillsAnswer is the list of skills.
type skillsAnswer struct {
	Skills []skillView `json:"skills"`
}

// SkillIn is the part of an input that names a skill.
type SkillIn struct {
	Name string `path:"name" minLength:"1" maxLength:"256" doc:"Name of the skill; one of a plugin also as plugin:name"`
}

// ForTemplate is the part of an input that says for which template skills are looked at.
type ForTemplate struct {
	Template string `query:"template" maxLength:"64" doc:"For which template runnable is told; when absent, that where the skill's scripts run, else that of a thread which asks for none"`
}

// switchBody is the body of PUT /api/skills/{name}.
type switchBody struct {
	Enabled bool   `json:"enabled"`
	For     string `json:"for,omitempty" enum:"me,everybody" default:"me" doc:"everybody: all users who did not choose otherwise; administrators only"`
}

func (s skillRoutes) add(api *route.API) {
	route.Register(api, route.On(http.MethodGet, "/api/skills", "listSkills", route.TagSkills, route.Agents, "All skills of the caller, sorted by name, also those that are off or do not load"), s.listSkills)
	route.Register(api, route.On(http.MethodGet, "/api/skills/{name}", "getSkill", route.TagSkills, route.Agents, "One skill"), s.getSkill)
	route.Register(api, route.On(http.MethodPut, "/api/skills/{name}", "switchSkill", route.TagSkills, route.Developers, "Switch a skill on or off; the caller's sandboxes show it at once"), s.switchSkill)

	const custom = "/api/skills/custom/{name}"
	markdown := map[string]*huma.MediaType{"text/markdown": {Schema: &huma.Schema{Type: huma.TypeString}}}
	op := route.On(http.MethodGet, custom, "getSkillText", route.TagSkills, route.Agents, "The SKILL.md of one of the caller's own skills, as it is")
	op.Responses = map[string]*huma.Response{"200": {Description: "OK", Content: markdown}, "default": api.ProblemResponse()}
	route.Register(api, op, s.skillText)
	op = route.On(http.MethodPut, custom, "putSkillText", route.TagSkills, route.Developers.Taking(route.AnyType), "Replace the SKILL.md of one of the caller's own skills; its other files stay")
	op.RequestBody = &huma.RequestBody{Required: true, Content: markdown}
	route.Register(api, op, s.putSkillText)
	route.Register(api, route.On(http.MethodDelete, custom, "deleteSkill", route.TagSkills, route.Developers, "Delete one of the caller's own skills"),
		func(ctx context.Context, in *SkillIn) (*struct{}, error) {
			return nil, s.skills.DeleteSkill(ctx, exchange.CallerOf(ctx), in.Name)
		})
}

func (s skillRoutes) listSkills(ctx context.Context, in *ForTemplate) (*route.Body[skillsAnswer], error) {
	c := exchange.CallerOf(ctx)
	list, err := s.skills.UserSkills(ctx, c)
	if err != nil {
		return nil, err
	}
	out := skillsAnswer{Skills: make([]skillView, 0, len(list))}
	for _, sk := range list {
		v, err := s.showSkill(ctx, c, sk, in.Template)
		if err != nil {
			return nil, err
		}
		out.Skills = append(out.Skills, v)
	}
	return route.BodyOf(out), nil
}

func (s skillRoutes) showSkill(ctx context.Context, c sandbox.Caller, sk sandbox.Skill, template string) (skillView, error) {
	v := skillView{
		Name: sk.Name, Description: sk.Description, License: sk.License, Compatibility: sk.Compatibility, AllowedTools: sk.AllowedTools, Metadata: map[string]any{}, Category: sk.Category, Enabled: sk.Enabled, Location: sk.Location,
		Digest: sk.Digest, Trusted: sk.Trusted, Template: sk.Template(), Findings: sk.Findings, Runnable: sandbox.Runnable{Template: sandbox.RunnableUnknown},
	}
	if s.runnable != nil {
		var err error
		if v.Runnable, err = s.runnable(ctx, c, sk, cmp.Or(template, sk.Template())); err != nil {
			return v, err
		}
	}
	if v.AllowedTools == nil {
		v.AllowedTools = []string{}
	}
	if sk.Metadata != nil {
		if err := json.Unmarshal(sk.Metadata, &v.Metadata); err != nil {
			return v, sandbox.Wrap(sandbox.Internal, err, "the metadata of the skill %q cannot be read", sk.Name)
		}
	}
	if v.Findings == nil {
		v.Findings = []sandbox.Finding{}
	}
	if v.Runnable.Missing == nil {
		v.Runnable.Missing = []string{}
	}
	return v, nil
}

// answerSkill is the answer that has one skill.
func (s skillRoutes) answerSkill(ctx context.Context, sk sandbox.Skill, template string) (*route.Body[skillView], error) {
	v, err := s.showSkill(ctx, exchange.CallerOf(ctx), sk, template)
	if err != nil {
		return nil, err
	}
	return route.BodyOf(v), nil
}

func (s skillRoutes) getSkill(ctx context.Context, in *struct {
	SkillIn
	ForTemplate
	Text bool `query:"text" doc:"With the text of SKILL.md, also of a skill that is off: what a person reads before switching it on"`
},
) (*route.Body[skillView], error) {
	c := exchange.CallerOf(ctx)
	sk, err := s.skills.UserSkill(ctx, c, in.Name)
	if err != nil {
		return nil, err
	}
	answer, err := s.answerSkill(ctx, sk, in.Template)
	if err != nil || !in.Text {
		return answer, err
	}
	text, err := s.skills.ReadSkill(ctx, c, in.Name)
	switch {
	case errors.Is(err, sandbox.NotFound): // a skill that does not load is still shown
	case err != nil:
		return nil, err
	case len(text) <= maxSkillText && utf8.Valid(text):
		shown := string(text)
		answer.Body.Text = &shown
	}
	return answer, nil
}

func (s skillRoutes) switchSkill(ctx context.Context, in *struct {
	SkillIn
	Body switchBody
},
) (*route.Body[skillView], error) {
	sk, err := s.skills.SwitchSkill(ctx, exchange.CallerOf(ctx), in.Name, in.Body.Enabled, in.Body.For == "everybody")
	if err != nil {
		return nil, err
	}
	return s.answerSkill(ctx, sk, "")
}

// skillText answers with text that another user may have written: never as a page of this server.
func (s skillRoutes) skillText(ctx context.Context, in *SkillIn) (*route.Written, error) {
	text, err := s.skills.SkillText(ctx, exchange.CallerOf(ctx), in.Name)
	if err != nil {
		return nil, err
	}
	return &route.Written{Body: func(c huma.Context) {
		w := humagin.Unwrap(c).Writer
		w.Header().Set("Content-Type", "text/markdown; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "sandbox; default-src 'none'")
		_, _ = w.Write(text) // the client may have gone
	}}, nil
}

func (s skillRoutes) putSkillText(ctx context.Context, in *SkillIn) (*route.Body[skillView], error) {
	text, err := io.ReadAll(io.LimitReader(exchange.Body(exchange.Of(ctx).Request.Body), maxSkillText+1))
	if err != nil {
		var known *sandbox.Error
		if errors.As(err, &known) {
			return nil, err
		}
		return nil, sandbox.Wrap(sandbox.Invalid, err, "the body cannot be read")
	}
	if len(text) > maxSkillText {
		return nil, sandbox.Errorf(sandbox.Invalid, "SKILL.md has at most %d bytes", maxSkillText)
	}
	sk, err := s.skills.WriteSkillText(ctx, exchange.CallerOf(ctx), in.Name, text)
	if err != nil {
		return nil, err
	}
	return s.answerSkill(ctx, sk, "")
}
