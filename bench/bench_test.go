package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestCorpus: the corpus is what its README says, and each size but the two largest ends with a server.
func TestCorpus(t *testing.T) {
	raw, all, err := readCorpus()
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("testdata/README.md")
	if err != nil {
		t.Fatal(err)
	}
	total, ends, names := 0, map[int]bool{}, map[string]bool{}
	for _, s := range all {
		row := fmt.Sprintf("| %d |", len(s.Tools))
		_, line, ok := strings.Cut(string(readme), "\n| "+s.Server+" |")
		if line, _, _ = strings.Cut(line, "\n"); !ok || !strings.Contains(line, row) {
			t.Errorf("README has no row of %s with %d tools", s.Server, len(s.Tools))
		}
		for _, tool := range s.Tools {
			var schema struct{ Type string }
			if json.Unmarshal(tool.InputSchema, &schema) != nil || schema.Type != "object" || names[s.Server+tool.Name] {
				t.Errorf("%s.%s: schema %s", s.Server, tool.Name, tool.InputSchema)
			}
			names[s.Server+tool.Name] = true
		}
		total += len(s.Tools)
		ends[total] = true
	}
	if total != 500 || !ends[10] || !ends[26] || !ends[45] {
		t.Errorf("%d tools; servers end at %v", total, ends)
	}
	file := filepath.Join(t.TempDir(), "corpus.json")
	if err := os.WriteFile(file, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, n := range sizes {
		servers, err := firstTools(all, "bench", file, n)
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, s := range servers {
			args := s.(map[string]any)["args"].([]string)
			srv := mcp.NewServer(&mcp.Implementation{Name: "x", Version: "1"}, nil)
			if err := replay(srv, args[2], args[3], args[4]); err != nil {
				t.Fatal(err)
			}
			got += len(list(t, srv))
		}
		if got != n {
			t.Errorf("%d tools of %d are shown", got, n)
		}
	}
	if _, err := firstTools(all, "bench", file, 501); err == nil {
		t.Error("more tools than there are")
	}
}

func session(t *testing.T, s *mcp.Server) *mcp.ClientSession {
	t.Helper()
	a, b := mcp.NewInMemoryTransports()
	server, err := s.Connect(context.Background(), a, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := mcp.NewClient(&mcp.Implementation{Name: "x", Version: "1"}, nil).Connect(context.Background(), b, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		server.Wait()
	})
	return client
}

func list(t *testing.T, s *mcp.Server) []string {
	t.Helper()
	var names []string
	for tool, err := range session(t, s).Tools(context.Background(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tool.Name)
	}
	return names
}

// TestStoryServers: the two servers of the story do what their tools say.
func TestStoryServers(t *testing.T) {
	files, crm := mcp.NewServer(&mcp.Implementation{Name: "d", Version: "1"}, nil), mcp.NewServer(&mcp.Implementation{Name: "c", Version: "1"}, nil)
	drive(files)
	newCRM(crm)
	sessions := map[string]*mcp.ClientSession{"drive": session(t, files), "crm": session(t, crm)}
	call := func(server, tool string, input, out any) error {
		t.Helper()
		res, err := sessions[server].CallTool(context.Background(), &mcp.CallToolParams{Name: tool, Arguments: input})
		if err != nil {
			return err
		}
		text := res.Content[0].(*mcp.TextContent).Text
		if res.IsError {
			return fmt.Errorf("%s", text)
		}
		return json.Unmarshal([]byte(text), out)
	}
	var found []driveFile
	if err := call("drive", "search_files", map[string]any{"query": "kickoff northwind"}, &found); err != nil || len(found) != 1 || found[0].Size != 50<<10 || found[0].Content != "" {
		t.Fatalf("%+v %v", found, err)
	}
	var doc driveFile
	if err := call("drive", "get_document", map[string]any{"documentId": found[0].ID}, &doc); err != nil || doc.Content != transcript() {
		t.Errorf("%d bytes, %v", len(doc.Content), err)
	}
	var answer map[string]any
	if err := call("crm", "update_lead", map[string]any{"id": "00Q-1001", "transcript": doc.Content, "status": "qualified"}, &answer); err != nil {
		t.Error(err)
	}
	var l lead
	if err := call("crm", "get_lead", map[string]any{"id": "00Q-1001"}, &l); err != nil {
		t.Error(err)
	}
	if err := stories[0].done(map[string]lead{l.ID: l}); err != nil {
		t.Error(err)
	}
	l.Transcript = l.Transcript[1:]
	leads := map[string]lead{l.ID: l}
	for _, s := range stories {
		if s.done(leads) == nil {
			t.Errorf("%s: did not happen, and counts as done", s.name)
		}
	}
	if err := call("drive", "search_files", map[string]any{"query": "review northwind"}, &found); err != nil || len(found) != 1 || found[0].Size != minutesSize {
		t.Errorf("%+v %v", found, err)
	}
	if n := len(strings.Split(summary(), "\n")); n != decisions {
		t.Errorf("%d decisions in the minutes", n)
	}
	for _, id := range contoso() {
		var l lead
		if err := call("crm", "get_lead", map[string]any{"id": id}, &l); err != nil || len(l.Activities) != 12 {
			t.Errorf("%s: %+v %v", id, l, err)
		}
		leads[id] = l
	}
	wanted := map[string]int{}
	for _, l := range leads {
		if len(l.Activities) > 0 {
			wanted[l.wanted()]++
		}
	}
	if wanted["qualified"] == 0 || wanted["lost"] == 0 {
		t.Errorf("all ten leads are to become the same: %v", wanted)
	}
	if err := call("crm", "update_lead", map[string]any{"id": "none"}, &answer); err == nil {
		t.Error("a lead that is not there was updated")
	}
}

// TestConversation: what is counted, and how often.
func TestConversation(t *testing.T) {
	count, err := newCounter()
	if err != nil {
		t.Fatal(err)
	}
	// "hello world" has two tokens in this vocabulary.
	if n, err := count.text("hello world"); err != nil || n != 2 {
		t.Errorf("%d tokens, %v", n, err)
	}
	c := &conversation{fixed: 100, turns: []turn{{0, 10}, {5, 50}, {7, 0}}}
	if n := c.once(); n != 172 {
		t.Errorf("once %d", n)
	}
	// The first request reads 110 tokens, the second also what came since.
	if in, out := c.billed(); in != 110+165 || out != 12 {
		t.Errorf("billed %d and %d", in, out)
	}
	p := prompt{Text: "say", Sections: map[string]string{"code_execution": "how"}, Tools: []json.RawMessage{json.RawMessage(`{"name":"execute_code"}`), json.RawMessage(`{"name":"a"}`)}}
	if got := p.directOnly().definitions(); got != "\n"+`{"name":"a"}` {
		t.Errorf("%q", got)
	}
	p.Tools = append(p.Tools, json.RawMessage(`{"name":"read_skill_file"}`))
	if got := p.codeOnly().definitions(); got != "how\n"+`{"name":"execute_code"}`+"\n"+`{"name":"a"}` {
		t.Errorf("%q", got)
	}
	if got, err := advice("a\nb. Advice:\n<example>\nx\n</example>\nc"); err != nil || got != "b. Advice:\n<example>\nx\n</example>\n" {
		t.Errorf("%q %v", got, err)
	}
	if _, err := advice("nothing"); err == nil {
		t.Error("no advice is advice")
	}
}

// TestPerformancePage: the published table and chart match the published results. The commands on the page
// name targets and parts that exist.
func TestPerformancePage(t *testing.T) {
	r, err := read("../docs/bench.json")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	if want, err := withTable(page, r); err != nil || !bytes.Equal(page, want) {
		t.Errorf("docs/performance.md does not show docs/bench.json: go run ./bench -redraw -json docs/bench.json -svg docs/bench.svg -page docs/performance.md (%v)", err)
	}
	if drawn, err := os.ReadFile("../docs/bench.svg"); err != nil || !bytes.Equal(drawn, chart(r)) {
		t.Errorf("docs/bench.svg is not the chart of docs/bench.json: %v", err)
	}
	for _, only := range regexp.MustCompile(`make bench ONLY=([a-z,]+)`).FindAllStringSubmatch(string(page), -1) {
		if _, err := wanted(only[1]); err != nil {
			t.Error(err)
		}
	}
}

// TestWanted: a part that there is not is an error that says so.
func TestWanted(t *testing.T) {
	all, err := wanted("")
	if err != nil || len(all) != len(parts)-4 { // all but bombs, idle, kubernetes and scale
		t.Errorf("%d parts, %v", len(all), err)
	}
	if some, err := wanted("idle,speed"); err != nil || len(some) != 2 || some[0].name != "speed" {
		t.Errorf("%v, %v", some, err)
	}
	for _, bad := range []string{"fast", "speed,", "speed,speed"} {
		if list, err := wanted(bad); err == nil {
			t.Errorf("%q gives %d parts", bad, len(list))
		}
	}
}

// TestMeasures: what is made of two samples, and when a bar is met.
func TestMeasures(t *testing.T) {
	ours, other := sample{P50: 2, P99: 10}, &sample{P50: 8, P99: 20}
	for m, want := range map[measure]float64{faster: 4, cost: 0.25, tail: 0.5, added: -6, addedTo: -10, fewer: 75, slowest: 10, spread: 5, middle: 2} {
		if got := m.of(ours, other); got != want {
			t.Errorf("%s: %v, want %v", m, got, want)
		}
	}
	if ok := (bar{atLeast: 4}).met(4); ok == nil || !*ok {
		t.Error("a bar that is just met")
	}
	if ok := (bar{atMost: 3}).met(3.1); ok == nil || *ok {
		t.Error("a bar that is not met")
	}
	if ok := (bar{atMost: 3}).met(-1); ok == nil || !*ok {
		t.Error("less than nothing is more than a bar")
	}
	if (bar{}).met(1) != nil {
		t.Error("no bar is met")
	}
	if s := sampled("x", []float64{3, 1, 2}); s.N != 3 || s.P50 != 2 || s.P99 != 3 {
		t.Errorf("%+v", s)
	}
}

// TestChart: it is XML, has two bars for each pair in ms, and longer is longer.
func TestChart(t *testing.T) {
	pair := func(name string, a, b float64) result {
		return result{Unit: "ms", RatioOf: faster, Ours: sample{Name: name, P50: a}, Against: &sample{Name: "<other> & co", P50: b}}
	}
	for _, r := range []*report{{}, {Results: []result{pair("a", 1, 1)}}, {Results: []result{pair("a", 0.5, 60), pair("b", 2, 1000), {Unit: "tokens", Against: &sample{}}}}} {
		svg := chart(r)
		bars := 0
		for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v in %s", err, svg)
			}
			if e, ok := token.(xml.StartElement); ok && e.Name.Local == "rect" {
				bars++
			}
		}
		pairs := 0
		for _, x := range r.Results {
			if x.Unit == "ms" {
				pairs++
			}
		}
		if bars != 2*pairs+2 { // and two of the legend
			t.Errorf("%d bars of %d pairs", bars, pairs)
		}
	}
}

// TestAlternate: a slow side is called less often, what does not count does not, and an error names its side.
func TestAlternate(t *testing.T) {
	b := &bench{settings: settings{rounds: 4, caseTime: time.Minute}, ctx: t.Context(), began: time.Now()}
	calls := [2]int{}
	times, err := b.alternate("x", side{name: "a", do: func() error { calls[0]++; return nil }}, side{name: "b", do: func() error { calls[1]++; return nil }, every: 2})
	if err != nil || len(times[0]) != 4 || len(times[1]) != 2 || calls != [2]int{5, 3} {
		t.Errorf("%v, %v, %v", times, calls, err)
	}
	b.caseTime = 0
	if times, err := b.alternate("x", side{name: "a", do: func() error { return nil }}); err != nil || len(times[0]) != 4 {
		t.Errorf("fewer than the fewest: %v, %v", times, err)
	}
	if _, err := b.alternate("x", side{name: "broken", do: func() error { return io.EOF }}); !errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "broken") {
		t.Error(err)
	}
}
