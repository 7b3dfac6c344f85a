package e2b

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skerry-sandbox/skerry/internal/api/e2b/envd/filesystem"
	"github.com/skerry-sandbox/skerry/internal/api/e2b/envd/filesystem/filesystemconnect"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// TestMetrics: a sandbox that runs has one metric, of now; other times have none.
func TestMetrics(t *testing.T) {
	h, srv := start(t)
	id := create(t, srv.URL, `{"templateID":"base","timeout":60}`)
	if status, body := call(t, "POST", srv.URL+"/files?path=f", id, strings.Repeat("x", 5000), "Content-Type: application/octet-stream"); status != 200 {
		t.Fatal(status, body)
	}
	h.mu.Lock()
	v := h.threads[id]
	v.Sandbox.CreatedAt = time.Now().Add(-100 * time.Second)
	h.load = sandbox.Load{CPU: 50 * time.Second, Memory: 64 << 20}
	h.mu.Unlock()
	get := func(query string) []metric {
		t.Helper()
		status, body := call(t, "GET", srv.URL+"/sandboxes/"+id+"/metrics"+query, "", "")
		var got []metric
		if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 {
			t.Fatal(status, body, err)
		}
		return got
	}
	got := get("")
	if len(got) != 1 {
		t.Fatal(got)
	}
	m := got[0]
	// 50 s of 100 s, of two processors.
	if m.CPU != 2 || m.CPUUsed < 24 || m.CPUUsed > 26 || m.MemUsed != 64<<20 || m.MemTotal != 1<<30 || m.DiskUsed < 5000 || m.DiskTotal != 2<<30 || time.Since(m.Time) > 2*metricStep || m.Unix != m.Time.Unix() {
		t.Errorf("%+v", m)
	}
	now := time.Now().Unix()
	for query, want := range map[string]int{
		fmt.Sprintf("?start=%d&end=%d", now, now): 1, fmt.Sprintf("?end=%d", now-60): 0, fmt.Sprintf("?start=%d", now+60): 0, fmt.Sprintf("?start=%d", now-60): 1,
	} {
		if got := get(query); len(got) != want {
			t.Errorf("%s: %v", query, got)
		}
	}
	for _, query := range []string{"?start=x", "?end=-1", "?start=9&end=8"} {
		if status, body := call(t, "GET", srv.URL+"/sandboxes/"+id+"/metrics"+query, "", ""); status != 400 || !strings.Contains(body, "want") {
			t.Error(query, status, body)
		}
	}
	if status, body := call(t, "POST", srv.URL+"/sandboxes/"+id+"/pause", "", ""); status != 204 {
		t.Error(status, body)
	}
	if got := get(""); len(got) != 0 {
		t.Error("a paused sandbox uses nothing", got)
	}
	if status, body := call(t, "GET", srv.URL+"/sandboxes/e2bnosuch/metrics", "", ""); status != 404 {
		t.Error(status, body)
	}
}

// TestComputed: how much a sandbox computes is told of the time since it was looked at before.
func TestComputed(t *testing.T) {
	_, a := adapter(t)
	defer a.Close()
	begin := time.Now()
	v := sandbox.ThreadView{Sandbox: &sandbox.Info{CreatedAt: begin, State: sandbox.Running}, ThreadInfo: sandbox.ThreadInfo{Labels: map[string]string{labelEnds: begin.Add(time.Hour).Format(time.RFC3339Nano)}}}
	q := request{caller: me, thread: "e2bx"}
	a.known.note(q, v)
	for _, c := range []struct {
		at, cpu time.Duration
		want    float64
	}{
		{10 * time.Second, 10 * time.Second, 100}, {10*time.Second + time.Millisecond, 10 * time.Second, 0}, {20 * time.Second, 11 * time.Second, 10},
		{30 * time.Second, time.Second, 3.33}, // another container, since the beginning
	} {
		if got := a.known.computed(q, v, measured{begin.Add(c.at), c.cpu}); got != c.want {
			t.Errorf("%s: %v, want %v", c.at, got, c.want)
		}
	}
}

// TestMetadata: what an upload says of its files is told with them, stays with a rename, and goes with the next write.
func TestMetadata(t *testing.T) {
	_, srv := start(t)
	id := create(t, srv.URL, `{"timeout":60}`)
	c := filesystemconnect.NewFilesystemClient(http.DefaultClient, srv.URL, connect.WithProtoJSON())
	of := func(path string) map[string]string {
		t.Helper()
		r := connect.NewRequest(&filesystem.StatRequest{Path: path})
		about(r, id)
		got, err := c.Stat(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return got.Msg.GetEntry().GetMetadata()
	}
	write := func(path string, headers ...string) (int, string) {
		t.Helper()
		return call(t, "POST", srv.URL+"/files?path="+path, id, "x", append(headers, "Content-Type: application/octet-stream")...)
	}
	status, body := write("d/f", "X-Metadata-Author: me", "X-Metadata-Two-Words: a b")
	if status != 200 || !strings.Contains(body, `"metadata":{"author":"me","two-words":"a b"}`) {
		t.Fatal(status, body)
	}
	if got := of("d/f"); len(got) != 2 || got["author"] != "me" || got["two-words"] != "a b" {
		t.Error(got)
	}
	list := connect.NewRequest(&filesystem.ListDirRequest{Path: "d"})
	about(list, id)
	if got, err := c.ListDir(t.Context(), list); err != nil || got.Msg.GetEntries()[0].GetMetadata()["author"] != "me" {
		t.Error(got, err)
	}
	move := connect.NewRequest(&filesystem.MoveRequest{Source: "d/f", Destination: "g"})
	about(move, id)
	if got, err := c.Move(t.Context(), move); err != nil || got.Msg.GetEntry().GetMetadata()["author"] != "me" {
		t.Error(got, err)
	}
	if status, body = write("g"); status != 200 || strings.Contains(body, "metadata") || len(of("g")) != 0 {
		t.Error(status, body, of("g"))
	}
	if got := of("d"); len(got) != 0 {
		t.Error(got)
	}
	if status, body = write("h", "X-Metadata-Long: "+strings.Repeat("x", 3000)); status != 400 || !strings.Contains(body, "at most") {
		t.Error(status, body)
	}
	if status, body = call(t, "GET", srv.URL+"/files?path=h", id, ""); status != 404 {
		t.Error("it was written", status, body)
	}
	if status, body = write("/tmp/h", "X-Metadata-A: b"); status != 501 || !strings.Contains(body, "metadata of files outside") {
		t.Error(status, body)
	}
}
