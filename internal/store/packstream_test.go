package store

import (
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// testPackStreams: one server has the name of a pack, until it says that the pack stops, or says nothing for too long, or
// is known to have ended. The same run of a program may come back at another server. A reader sees each change.
func testPackStreams(t *testing.T, s *Store) {
	ctx := t.Context()
	const ttl = time.Minute
	stream := func(replica, id, tenant, instance string) PackStream {
		return PackStream{replica, sandbox.PackStream{ID: id, Tenant: tenant, Instance: instance, Identity: "key k", Since: time.Now().UTC(), Digest: "d"}}
	}
	claim := func(p PackStream, gone string, ttl time.Duration) (string, error) {
		from, _, err := s.ClaimPack(ctx, p, gone, ttl)
		return from, err
	}
	take := func(p PackStream, want string) {
		t.Helper()
		if from, err := claim(p, "", ttl); err != nil || from != want {
			t.Errorf("%s takes %s from %q: %v", p.Replica, p.ID, from, err)
		}
	}
	refuse := func(p PackStream) {
		t.Helper()
		_, err := claim(p, "", ttl)
		wantKind(t, err, sandbox.Conflict)
	}
	crm := stream("a", "crm", "t", "one")
	take(crm, "")
	take(crm, "") // again
	refuse(stream("b", "crm", "t", "two"))
	refuse(stream("b", "crm", "", "two"))  // for all tenants
	take(stream("b", "crm", "u", "x"), "") // another tenant's
	take(stream("b", "crm", "t", "one"), "a")
	wantKind(t, s.PutPack(ctx, crm), sandbox.Conflict)
	stops := stream("b", "crm", "t", "one")
	stops.Draining = true
	must(t, s.PutPack(ctx, stops))
	take(stream("a", "crm", "t", "two"), "b")
	must(t, s.RemovePack(ctx, stops)) // which has nothing any more
	if _, err := claim(stream("b", "crm", "t", "three"), "a", ttl); err != nil {
		t.Errorf("from one that has ended: %v", err)
	}
	time.Sleep(20 * time.Millisecond)
	if _, err := claim(stream("a", "crm", "t", "four"), "", time.Millisecond); err != nil {
		t.Errorf("from one that is silent: %v", err)
	}

	skill := stream("b", "review", "t", "i")
	skill.Thread, skill.Channel, skill.Home = sandbox.Thread{Owner: sandbox.Owner{Tenant: "t", User: "ann"}, ID: "x"}, "ch", "a"
	take(skill, "")
	view, err := s.ReadPacks(ctx, "a", "first", PackView{})
	must(t, err)
	if len(view.Streams) != 3 || view.Epoch != "first" || view.Silent["a"] != 0 {
		t.Errorf("%+v", view)
	}
	other, err := s.ReadPacks(ctx, "b", "second", PackView{})
	must(t, err)
	if len(other.Streams) != 2 || other.Epoch != "first" {
		t.Errorf("%+v", other)
	}
	same, err := s.ReadPacks(ctx, "a", "third", view)
	must(t, err)
	if len(same.Streams) != 3 {
		t.Errorf("%+v", same)
	}
	must(t, s.RemovePack(ctx, skill))
	if view, err = s.ReadPacks(ctx, "a", "third", same); err != nil || len(view.Streams) != 2 {
		t.Errorf("%+v %v", view, err)
	}
	must(t, s.LeavePacks(ctx, "a"))
	take(stream("b", "crm", "t", "five"), "")
}
