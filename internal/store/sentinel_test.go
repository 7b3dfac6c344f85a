package store

import (
	"errors"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store/redistest"
)

// TestSentinel: a store that is told of Sentinels finds the master, and the next one when that dies.
func TestSentinel(t *testing.T) {
	t.Parallel()
	master, replica := redistest.Start(t), redistest.Start(t)
	replica.Follow(master)
	s, err := Open(t.Context(), Options{URL: "redis://" + redistest.StartSentinel(t, master, "") + "?master_name=mymaster"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	key := KeyRecord{ID: "key_1", Tenant: "acme", User: "ann", Hash: "h1"}
	until(t, "the master is found", func() error { return s.PutKey(t.Context(), key) })
	until(t, "the replica has it", func() error {
		if n, err := replica.Client().Exists(t.Context(), keyHashesKey).Result(); err != nil || n == 0 {
			return sandbox.Errorf(sandbox.NotFound, "%d, %v", n, err)
		}
		return nil
	})
	master.Kill()
	key.ID, key.Hash = "key_2", "h2"
	until(t, "the replica is the master", func() error { return s.PutKey(t.Context(), key) })
	if keys, err := s.Keys(t.Context(), "acme"); err != nil || len(keys) != 2 {
		t.Errorf("%v, %v", keys, err)
	}
}

// TestSentinelPasswords: before the @ is the password of the Sentinels, in the query that of Redis, as the documentation says.
func TestSentinelPasswords(t *testing.T) {
	t.Parallel()
	for _, sentinels := range []string{"", "theirs"} {
		master := redistest.Start(t)
		master.Protect("of-redis")
		addr := redistest.StartSentinel(t, master, sentinels)
		who := ""
		if sentinels != "" {
			who = ":" + sentinels + "@"
		}
		for query, works := range map[string]bool{"&password=of-redis": true, "&password=another": false, "": false} {
			s, err := Open(t.Context(), Options{URL: "redis://" + who + addr + "?master_name=mymaster&addr=127.0.0.1:1" + query})
			if err != nil {
				t.Fatal(err)
			}
			if works {
				until(t, "it is let in", func() error { return s.Ping(t.Context()) })
			} else if err := s.Ping(t.Context()); !errors.Is(err, sandbox.Unavailable) {
				t.Errorf("with %q: %v", query, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// until tries until it works. A failover takes seconds.
func until(t *testing.T, what string, do func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if err = do(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}
