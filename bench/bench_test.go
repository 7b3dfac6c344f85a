package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
	if err := stories[0].done(l); err != nil {
		t.Error(err)
	}
	l.Transcript = l.Transcript[1:]
	if stories[0].done(l) == nil || stories[1].done(l) == nil {
		t.Error("a story that did not happen counts as done")
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
	if saved(100, 25) != "75.0 %" || saved(100, 150) != "none: +50 %" {
		t.Error(saved(100, 25), saved(100, 150))
	}
	p := prompt{Text: "say", Tools: []json.RawMessage{json.RawMessage(`{"name":"execute_code"}`), json.RawMessage(`{"name":"a"}`)}}
	if got := p.directOnly().definitions(); got != "\n"+`{"name":"a"}` {
		t.Errorf("%q", got)
	}
}
