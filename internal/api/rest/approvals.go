package rest

import (
	"context"
	"net/http"

	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/service"
)

// approvalRoutes are the routes of approvals.
type approvalRoutes struct {
	approvals service.Approvals // nil: there are none
}

type approvalsIn struct {
	State  string `query:"state" enum:"pending,approved,denied,expired,cancelled"`
	User   string `query:"user" maxLength:"128" doc:"Those who decide only, unless it is the caller"`
	Thread string `query:"thread" maxLength:"128"`
	Tool   string `query:"tool" maxLength:"1024"`
	Cursor string `query:"cursor" maxLength:"64"`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

// ApprovalIn names a request.
type ApprovalIn struct {
	ID string `path:"id" maxLength:"64"`
}

// decisionBody is the body of POST /api/approvals/{id}.
type decisionBody struct {
	Decision string `json:"decision" enum:"approve,deny"`
	Scope    string `json:"scope,omitempty" enum:"once,arguments,thread" doc:"What an approval is good for: this call (when absent), each call of the tool in the thread with exactly these arguments, or each call of it in the thread"`
	Reason   string `json:"reason,omitempty" maxLength:"1024" doc:"Told to the agent when the call is denied"`
}

var errNoApprovals = sandbox.Errorf(sandbox.NotSupported, "this server asks for no approvals")

func (s approvalRoutes) add(api *route.API) {
	route.Register(api, route.On(http.MethodGet, "/api/approvals", "listApprovals", route.TagAdmin, route.Agents,
		"Calls that wait, or waited, for a decision, newest first: the caller's own, or for those who decide the tenant's"),
		func(ctx context.Context, in *approvalsIn) (*route.Body[route.Page[sandbox.Approval]], error) {
			if s.approvals == nil {
				return route.PageOf([]sandbox.Approval{}, ""), nil
			}
			items, next, err := s.approvals.List(ctx, exchange.CallerOf(ctx), sandbox.ApprovalFilter{
				State: sandbox.ApprovalState(in.State), User: in.User, Thread: in.Thread, Tool: in.Tool, Cursor: in.Cursor, Limit: in.Limit,
			})
			if err != nil {
				return nil, err
			}
			return route.PageOf(items, next), nil
		})
	route.Register(api, route.On(http.MethodGet, "/api/approvals/{id}", "getApproval", route.TagAdmin, route.Agents, "One of them"),
		func(ctx context.Context, in *ApprovalIn) (*route.Body[sandbox.Approval], error) {
			if s.approvals == nil {
				return nil, errNoApprovals
			}
			return approvalOf(s.approvals.Get(ctx, exchange.CallerOf(ctx), in.ID))
		})
	route.Register(api, route.On(http.MethodPost, "/api/approvals/{id}", "decideApproval", route.TagAdmin, route.Developers,
		"Decide on a call. One decision counts: a second one is a conflict. Not with the key that made the call"),
		func(ctx context.Context, in *struct {
			ApprovalIn
			Body decisionBody
		},
		) (*route.Body[sandbox.Approval], error) {
			if s.approvals == nil {
				return nil, errNoApprovals
			}
			b := in.Body
			v := sandbox.ApprovalVerdict{Approve: b.Decision == "approve", Scope: sandbox.ApprovalScope(b.Scope), Reason: b.Reason}
			return approvalOf(s.approvals.Decide(ctx, exchange.CallerOf(ctx), in.ID, v))
		})
}

func approvalOf(a sandbox.Approval, err error) (*route.Body[sandbox.Approval], error) {
	if err != nil {
		return nil, err
	}
	return route.BodyOf(a), nil
}
