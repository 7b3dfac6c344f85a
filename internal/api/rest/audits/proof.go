package audits

import (
	"context"
	"net/http"

	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// proofRoutes are the routes of proofs of the audit log.
type proofRoutes struct {
	proof Proof // nil: the log is not verified here
}

// Proof says whether the audit log is as it was written.
type Proof interface {
	// Verify checks all of the log that lies on this server's disk. Conflict: that is being done.
	Verify(ctx context.Context) (audit.VerifyResult, error)
	// Checkpoints are signed heads, to be held elsewhere.
	Checkpoints(ctx context.Context) ([]audit.Head, error)
}

func (s proofRoutes) add(api *route.API) {
	route.Register(api, route.On(http.MethodPost, "/api/audit/verify", "verifyAudit", route.TagAdmin, route.Auditors,
		"Check that no audit record on this server's disk was changed, removed, reordered, inserted or hashed anew"), s.verifyAudit)
	route.Register(api, route.On(http.MethodGet, "/api/audit/checkpoint", "auditCheckpoint", route.TagAdmin, route.Auditors,
		"Signed heads of the audit log: kept elsewhere, they show that it was cut or written anew"), s.auditCheckpoint)
}

var errNoProof = sandbox.Errorf(sandbox.NotSupported, "this server does not verify its audit log")

func (s proofRoutes) verifyAudit(ctx context.Context, _ *struct{}) (*route.Body[audit.VerifyResult], error) {
	if s.proof == nil {
		return nil, errNoProof
	}
	res, err := s.proof.Verify(ctx)
	if err != nil {
		return nil, err
	}
	return &route.Body[audit.VerifyResult]{Body: res}, nil
}

func (s proofRoutes) auditCheckpoint(ctx context.Context, in *route.ListIn) (*route.Body[route.Page[audit.Head]], error) {
	if s.proof == nil {
		return nil, errNoProof
	}
	heads, err := s.proof.Checkpoints(ctx)
	if err != nil {
		return nil, err
	}
	return route.PageIn(*in, heads, func(h audit.Head) string { return h.Writer })
}
