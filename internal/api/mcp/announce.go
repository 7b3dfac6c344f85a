package mcp

import (
	"context"
	"encoding/json"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/service"
)

// The SDK tells clients of a change when something is added to a server, whatever list we answer with. So
// what is added has no other use, and is never shown.
const (
	announcement    = "skerry.changed"
	announcementURI = "skerry:changed"
)

// isAnnouncement reports whether a member of a list stands for nothing.
func isAnnouncement(raw json.RawMessage) bool {
	var it struct {
		Name string `json:"name"`
	}
	return json.Unmarshal(raw, &it) == nil && it.Name == announcement
}

// announceEvery is how often clients are told of changes at most. A change of any thread is told to all, so that code which changes its
// own again and again would have the clients of all others list their tools as often.
const announceEvery = 500 * time.Millisecond

// announceTo tells the clients of a server of changes, until stop is called.
func announceTo(o service.Service, scope *Scope) (stop func()) {
	up, srv := o.Upstream, scope.server
	ended, done := make(chan struct{}), make(chan struct{})
	// Before the goroutine: no change from here on is missed.
	tools, prompts, resources := up.ToolsChanged(), up.UpstreamChanged(sandbox.UpstreamPrompts), up.UpstreamChanged(sandbox.UpstreamResources)
	skills := o.ThreadSkills.SkillsChanged()
	active, unwatch := o.ActiveTools.WatchActiveTools(sandbox.Thread{Owner: scope.Caller.Owner, ID: scope.Thread})
	go func() {
		defer close(done)
		defer unwatch()
		for {
			select {
			case <-ended:
				return
			case <-tools:
				tools = up.ToolsChanged()
				announceTools(srv)
			case <-active:
				announceTools(srv)
			case <-skills: // each is a resource, and named in the schema of activate_skill
				skills = o.ThreadSkills.SkillsChanged()
				announceTools(srv)
				announceResources(srv)
			case <-prompts:
				prompts = up.UpstreamChanged(sandbox.UpstreamPrompts)
				srv.AddPrompt(&sdk.Prompt{Name: announcement}, func(context.Context, *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
					return &sdk.GetPromptResult{}, nil
				})
			case <-resources:
				resources = up.UpstreamChanged(sandbox.UpstreamResources)
				announceResources(srv)
			}
			select { // what changes meanwhile has closed its channel
			case <-ended:
				return
			case <-time.After(announceEvery):
			}
		}
	}()
	return func() { close(ended); <-done }
}

func announceTools(srv *sdk.Server) {
	srv.AddTool(&sdk.Tool{Name: announcement, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return toolText("not a tool", true), nil
	})
}

func announceResources(srv *sdk.Server) {
	srv.AddResource(&sdk.Resource{Name: announcement, URI: announcementURI}, func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		return nil, sdk.ResourceNotFoundError(announcementURI)
	})
}
