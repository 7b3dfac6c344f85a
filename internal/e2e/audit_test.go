package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skerry-sandbox/skerry/internal/store/redistest"
)

// TestAuditStory: code that calls tools and writes files is one tree of records, from the request down to each file,
// with who asked, hashes and sizes; and the server verifies all of it.
func TestAuditStory(t *testing.T) {
	t.Parallel()
	shared := sharedFolder(t)
	must(t, os.WriteFile(filepath.Join(shared, "big.txt"), []byte(strings.Repeat("0123456789abcde\n", 90_000)), 0o644))
	s := start(t, options{extensions: mcpServers(t, shared)})
	s.connect("connects")
	a := s.do("POST", "/api/threads/story/execute_code", map[string]any{"language": "typescript", "code": fmt.Sprintf(`
import { readTextFile } from './servers/filesystem';
import { writeFileSync } from 'fs';
await readTextFile({ path: '%[1]s/a.txt' });
await readTextFile({ path: '%[1]s/big.txt' });
await callMCPTool('everything__echo', { message: 'hi', api_key: 'hunter2' }).catch(() => {});
writeFileSync('/mnt/user-data/outputs/report.txt', 'done');
console.log('ok');`, shared)})
	var r result
	a.into(t, &r)
	if r.Stdout != "ok\n" {
		t.Fatalf("%+v", r)
	}
	request := a.header.Get("X-Request-Id")
	var list struct{ Items []map[string]any }
	s.do("GET", "/api/audit?limit=1000&thread=story", nil).into(t, &list)
	children := map[any][]map[string]any{}
	var root map[string]any
	for _, rec := range list.Items {
		if rec["request_id"] != request {
			t.Errorf("a record of another request: %v", rec)
		}
		for _, member := range []string{"source", "user_agent", "auth", "role"} {
			if rec[member] == nil || rec[member] == "" {
				t.Errorf("%v %v has no %s", rec["action"], rec["phase"], member)
			}
		}
		if rec["action"] == "execute_code" && rec["phase"] == "attempt" {
			root = rec
		}
		children[rec["parent"]] = append(children[rec["parent"]], rec)
	}
	if root == nil {
		t.Fatalf("no attempt of the code among %d records", len(list.Items))
	}
	var told []string
	for i := len(children[root["id"]]) - 1; i >= 0; i-- { // oldest first
		rec := children[root["id"]][i]
		told = append(told, fmt.Sprint(rec["action"], " ", rec["phase"]))
		if rec["exec"] != r.ExecID {
			t.Errorf("%v has the exec %v", rec["action"], rec["exec"])
		}
		switch rec["action"] {
		case "tool_call":
			if rec["args_hash"] == nil || rec["args"] == nil || rec["bytes_in"] == 0.0 {
				t.Errorf("the attempt of %v has no arguments: %v", rec["subject"], rec)
			}
			results, files := 0, 0
			for _, below := range children[rec["id"]] {
				switch {
				case below["action"] == "tool_call" && below["phase"] == "result":
					results++
					if below["outcome"] == "ok" && (below["out_hash"] == nil || below["bytes_out"] == 0.0) {
						t.Errorf("the result of %v has no hash or size: %v", rec["subject"], below)
					}
				case below["action"] == "file_change":
					files++
				}
			}
			if want := strings.Contains(fmt.Sprint(rec["args"]), "big.txt"); results != 1 || (files == 1) != want {
				t.Errorf("%v %v has %d results and %d files", rec["subject"], rec["args"], results, files)
			}
		case "file_change":
			if rec["subject"] == "/mnt/user-data/outputs/report.txt" && (rec["detail"] != "created" || rec["bytes_out"] != 4.0 || len(fmt.Sprint(rec["out_hash"])) != 64) {
				t.Errorf("the file is recorded as %v", rec)
			}
		case "execute_code":
			if rec["outcome"] != "exited" || rec["out_hash"] == nil || rec["bytes_out"] != 3.0 {
				t.Errorf("the result of the code is %v", rec)
			}
		}
	}
	story := strings.Join(told, ", ")
	if !strings.HasPrefix(story, "tool_call attempt, tool_call attempt, tool_call attempt, file_change result") || !strings.HasSuffix(story, "execute_code result") {
		t.Errorf("below the code there are: %s", story)
	}
	text, err := json.Marshal(list)
	must(t, err)
	if strings.Contains(string(text), "hunter2") && strings.Contains(string(text), `"api_key":"hunter2"`) {
		t.Error("a secret argument of a tool call is recorded")
	}
	var proof struct {
		OK      bool
		Records uint64
		Writers []struct {
			Signed uint64 `json:"signed_seq"`
		}
	}
	s.do("POST", "/api/audit/verify", map[string]any{}).into(t, &proof)
	if !proof.OK || proof.Records < uint64(len(list.Items)) || len(proof.Writers) != 1 {
		t.Errorf("verified: %+v", proof)
	}
}

// TestAuditKilledServer kills a server with Redis at random moments while execs run. Each exec that was
// answered has its two records, on the disk and in Redis. No record is there twice, and the log verifies,
// offline too.
func TestAuditKilledServer(t *testing.T) {
	t.Parallel()
	kills := 12
	if testing.Short() {
		kills = 3
	}
	redis := redistest.Start(t)
	s := start(t, options{args: []string{"--redis", redis.URL()}})
	s.ok("kill", "true")
	random := rand.New(rand.NewPCG(5, 6)) //nolint:gosec // a test that can be repeated
	var mu sync.Mutex
	answered := map[string]bool{}
	for range kills {
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for {
					a, err := s.request("POST", "/api/threads/kill/exec", map[string]any{"command": "true"})
					if err != nil {
						return // the server is dead
					}
					var r result
					if a.status == http.StatusOK && json.Unmarshal(a.body, &r) == nil {
						mu.Lock()
						answered[r.ExecID] = true
						mu.Unlock()
					}
				}
			})
		}
		time.Sleep(time.Duration(100+random.IntN(400)) * time.Millisecond)
		s.kill()
		wg.Wait()
		s.boot()
	}
	s.ok("kill", "true")
	ids, results := map[any]int{}, map[any]int{}
	for cursor := ""; ; {
		var list struct {
			Items []map[string]any
			Next  string `json:"next_cursor"`
		}
		s.do("GET", "/api/audit?limit=1000&thread=kill&cursor="+url.QueryEscape(cursor), nil).into(t, &list)
		for _, r := range list.Items {
			ids[r["id"]]++
			if r["action"] == "exec" {
				results[fmt.Sprint(r["exec"], " ", r["phase"])]++
			}
		}
		if cursor = list.Next; cursor == "" {
			break
		}
	}
	for id, n := range ids {
		if n != 1 {
			t.Errorf("record %v is in Redis %d times", id, n)
		}
	}
	for id := range answered {
		if results[id+" attempt"] != 1 || results[id+" result"] != 1 {
			t.Errorf("the answered exec %s has %d attempts and %d results", id, results[id+" attempt"], results[id+" result"])
		}
	}
	var proof struct {
		OK       bool
		FirstBad any `json:"first_bad"`
	}
	s.do("POST", "/api/audit/verify", map[string]any{}).into(t, &proof)
	if !proof.OK {
		t.Errorf("the server says: %v", proof.FirstBad)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "skerry"), "audit", "verify",
		"--segments", filepath.Join(s.data, "audit"), "--public-key", filepath.Join(s.data+".keys", "audit.pub.pem")).CombinedOutput()
	if err != nil {
		t.Errorf("skerry audit verify: %v\n%s", err, out)
	}
	t.Logf("%d kills: %d answered execs, %d records, none lost, none twice\n%s", kills, len(answered), len(ids), out)
}
