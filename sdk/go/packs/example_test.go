package packs_test

import (
	"context"
	"log"
	"strings"

	skerry "github.com/skerry-sandbox/skerry/sdk/go"
	"github.com/skerry-sandbox/skerry/sdk/go/packs"
)

// Lead is what the CRM of the example knows.
type Lead struct {
	Email string `json:"email"`
}

// Export is where the example's file is.
type Export struct {
	Path string `json:"path"`
}

func exportLeads(table []byte) (*packs.Result, error) {
	block, path := packs.File("leads-7f3a.csv", "text/csv", table)
	return &packs.Result{Content: []map[string]any{block}, Structured: Export{Path: path}}, nil
}

type crm struct{}

func (crm) Find(_ context.Context, name string) (Lead, error) {
	return Lead{Email: name + "@example.com"}, nil
}

func Example() {
	ctx, server, key, leads := context.Background(), "http://127.0.0.1:8080", "sk_…", crm{}

	pack := packs.New("crm", "1.0.0")
	err := packs.Tool(pack, "find_lead", "Finds a lead by name", func(ctx context.Context, in struct {
		Name string `json:"name" jsonschema:"whom to look for"`
	}) (Lead, error) {
		return leads.Find(ctx, in.Name)
	})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(pack.Serve(ctx, packs.Server{URL: server, Credential: packs.BearerKey(key)}))
}

func ExamplePack_Serve() {
	ctx, first, second, key := context.Background(), "http://10.0.0.1:8080", "http://10.0.0.2:8080", "sk_…"
	pack := packs.New("crm", "1.0.0")
	err := pack.Serve(ctx, packs.Server{URL: first, Others: []string{second}, Credential: packs.BearerKey(key)})
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleAttachSkill() {
	ctx, server := context.Background(), "http://127.0.0.1:8080"
	client := skerry.New(server, skerry.Options{})

	pack := packs.New("code-review", "1.0.0")
	err := packs.Tool(pack, "count-lines", "Counts the lines of a text", func(_ context.Context, in struct {
		Text string `json:"text"`
	}) (int, error) {
		return strings.Count(in.Text, "\n") + 1, nil
	})
	if err != nil {
		log.Fatal(err)
	}
	skill := skerry.VirtualSkill{Name: "code-review", Description: "Reviews code", Body: "Count the lines first."}
	attached, err := packs.AttachSkill(ctx, client.Thread("t1"), skill, pack, packs.Server{URL: server})
	if err != nil {
		log.Fatal(err)
	}
	defer attached.Close() // takes the skill away
}

func Example_file() {
	pack := packs.New("crm", "1.0.0")
	err := packs.Tool(pack, "export_leads", "Exports all leads", func(context.Context, struct{}) (*packs.Result, error) {
		return exportLeads([]byte("name\n"))
	}, packs.Output[Export]())
	if err != nil {
		log.Fatal(err)
	}
}
