package audit

import (
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// outcomes are all that records have.
var outcomes = []string{
	"ok", "error", "denied", "timeout", // of calls
	string(sandbox.StatusExited), string(sandbox.StatusOOM), string(sandbox.StatusKilled), string(sandbox.StatusLost), // of execs
	string(sandbox.ApprovalPending), string(sandbox.ApprovalApproved), string(sandbox.ApprovalExpired), string(sandbox.ApprovalCancelled),
	"pinned", "repinned", "returned", sandbox.DriftAdded, sandbox.DriftChanged, sandbox.DriftRemoved, // of tools
	"connected", "reloaded", "refused", "ended", // of packs
}

// CheckNames reports a filter that no record can match, because its action or outcome is misspelt. Invalid.
func (f Filter) CheckNames() error {
	if f.Action != "" && !slices.Contains(actions, f.Action) {
		return sandbox.InvalidField("action", "%.64q is not one: use %s", f.Action, strings.Join(actions, ", "))
	}
	if f.Outcome != "" && !slices.Contains(outcomes, f.Outcome) {
		return sandbox.InvalidField("outcome", "%.64q is not one: use %s", f.Outcome, strings.Join(outcomes, ", "))
	}
	return nil
}
