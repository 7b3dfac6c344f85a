package approval

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// grantStore is what grants needs of *store.Store.
type grantStore interface {
	SaveGrant(ctx context.Context, t sandbox.Thread, name string, g store.Grant) error
	Grants(ctx context.Context, t sandbox.Thread, names ...string) ([]store.Grant, error)
	ForgetGrants(ctx context.Context, t sandbox.Thread) error
}

// grants are the lasting approvals of threads.
type grants struct{ store grantStore }

// find returns a grant of the thread that covers the call. there: it has one. What a key has granted is not for the
// calls of that key.
func (g grants) find(ctx context.Context, c sandbox.ApprovalCall) (found store.Grant, there bool, err error) {
	list, err := g.store.Grants(ctx, c.Thread, grantName(c, sandbox.ApproveThread), grantName(c, sandbox.ApproveArguments))
	if err != nil {
		return store.Grant{}, false, err
	}
	for _, one := range list {
		if one.Approval != "" && (one.KeyID == "" || !byKey(c.Caller, one.KeyID)) {
			return one, true, nil
		}
	}
	return store.Grant{}, false, nil
}

// save keeps what an approval is good for beyond its call.
func (g grants) save(ctx context.Context, a store.ApprovalRecord) error {
	if a.State != sandbox.ApprovalApproved || a.Decision == nil || a.Decision.Scope == sandbox.ApproveOnce {
		return nil
	}
	return g.store.SaveGrant(ctx, threadOf(a), grantName(callOf(a), a.Decision.Scope), store.Grant{Approval: a.ID, By: a.Decision.By, KeyID: a.Decision.KeyID})
}

// grantName names what a lasting approval is good for.
func grantName(c sandbox.ApprovalCall, scope sandbox.ApprovalScope) string {
	parts := []string{c.Server, c.Tool, c.Skill}
	if c.SkillDigest != "" { // another skill of the name, and the same one with other files, are asked for again
		parts = append(parts, c.SkillDigest)
	}
	if scope == sandbox.ApproveArguments {
		parts = append(parts, c.ArgsHash)
	}
	text, err := json.Marshal(parts) // tells the parts apart
	if err != nil {
		panic(err) // strings can always be written
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// callOf is what a request tells of its call, as far as approvals tell calls apart.
func callOf(a store.ApprovalRecord) sandbox.ApprovalCall {
	return sandbox.ApprovalCall{Server: a.Server, Tool: a.Tool, Skill: a.Skill, SkillDigest: a.SkillDigest, ArgsHash: a.ArgsHash}
}

func threadOf(a store.ApprovalRecord) sandbox.Thread {
	return sandbox.Thread{Owner: sandbox.Owner{Tenant: a.Tenant, User: a.User}, ID: a.Thread}
}
