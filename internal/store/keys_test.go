package store

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestKeysAreListed: the comment of keys.go has a row for each key that its functions and constants make. The version
// in skerry:{:format} is that of all of them.
func TestKeysAreListed(t *testing.T) {
	t.Parallel()
	o := sandbox.Owner{Tenant: "T", User: "U"}
	thread := sandbox.Thread{Owner: o, ID: "THREAD"}
	made := map[string]string{
		"threadsKey": threadsKey(o), "threadIndexKey": threadIndexKey(o), "activeKey": activeKey(o), "tenantActiveKey": tenantActiveKey("T"), "activeBuiltKey": activeBuiltKey("T"), "sandboxKey": sandboxKey(thread),
		"threadUsageKey": threadUsageKey(o), "diskKey": diskKey(o), "tenantDiskKey": tenantDiskKey("T"),
		"leaseKey": leaseKey(thread), "fenceKey": fenceKey("T"), "tenantKeysKey": tenantKeysKey("T"), "tenantSecretsKey": tenantSecretsKey("T"), "secretUsesKey": secretUsesKey("T"),
		"pinnedServersKey": pinnedServersKey, "packKeysKey": packKeysKey, "toolPinsKey": pinnedServersKey + ":ID", "packStreamsKey": packStreamsKey, "packLeasesKey": packLeasesKey, "packEpochKey": packEpochKey, "skillStreamsKey": skillStreamsKey("REPLICA"), "secretTenantsKey": secretTenantsKey, "secretVersionKey": secretVersionKey,
		"keyUsesKey": keyUsesKey("T"), "keyHashesKey": keyHashesKey, "keysChannel": keysChannel, "uidKey": uidKey, "poolKey": poolKey("TEMPLATE"),
		"idempotencyKey": idempotencyKey(o, "SHA256"), "idempotencySinceKey": idempotencySinceKey("T"), "ownerAnswersKey": ownerAnswersKey(o), "ownerSinceKey": ownerSinceKey(o), "tenantAnswersKey": tenantAnswersKey("T"), "rateKey": rateKey("T", "LIMIT", "SCOPE"),
		"sharedRateKey": sharedRateKey("LIMIT", "SCOPE"), "heldKey": heldKey("T", "LIMIT", "SCOPE"), "usageKey": usageKey("T", "DAY"),
		"cpuMarkKey": cpuMarkKey("T", "SANDBOX"), "approvalsKey": approvalsKey("T"), "approvalChannel": approvalChannel, "filesChannel": filesChannel, "openApprovalsKey": openApprovalsKey("T"),
		"grantsKey": grantsKey(thread), "AuditStreamKey": AuditStreamKey("T"), "AuditCursorKey": AuditCursorKey("T"), "AuditHeadKey": AuditHeadKey("WRITER"),
		"AuditWriterKey": AuditWriterKey("WRITER"), "AuditIndexKey": AuditIndexKey("T", "FIELD", "HASH"), "AuditTenantsKey": AuditTenantsKey, "formatKey": formatKey,
	}
	file, err := parser.ParseFile(token.NewFileSet(), "keys.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, c := range file.Comments {
		for _, row := range regexp.MustCompile(`(?m)^\tskerry:\S+`).FindAllString(c.Text(), -1) {
			listed[strings.TrimSpace(row)] = true
		}
	}
	for name, key := range made {
		if !listed[key] {
			t.Errorf("%s: no row in the comment of keys.go is of %s", name, key)
		}
	}
	makers := regexp.MustCompile(`(Key|Channel)$`)
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if name := n.Name.Name; makers.MatchString(name) && made[name] == "" {
				t.Errorf("%s is not in this test", name)
			}
		case *ast.ValueSpec:
			if name := n.Names[0].Name; makers.MatchString(name) && made[name] == "" {
				t.Errorf("%s is not in this test", name)
			}
		}
		return true
	})
}
