package mcp

import (
	"fmt"
	"testing"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestSessionsAreBounded(t *testing.T) {
	var table sessions
	table.byID = map[string]*session{}
	owner := func(user string) *Scope {
		return &Scope{Caller: sandbox.Caller{Owner: sandbox.Owner{Tenant: "t", User: user}}}
	}
	for i := range maxOwnerSessions {
		if err := table.add(&session{id: fmt.Sprint(i), scope: owner("ann")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.add(&session{id: "more", scope: owner("ann")}); sandbox.KindOf(err) != sandbox.CapacityExceeded {
		t.Errorf("one too many: %v", err)
	}
	if err := table.add(&session{id: "other", scope: owner("bob")}); err != nil {
		t.Errorf("another user: %v", err)
	}
	table.remove(&session{id: "0"})
	if err := table.add(&session{id: "again", scope: owner("ann")}); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
}
