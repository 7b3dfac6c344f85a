package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// serverArg makes this program one of the MCP servers that the measurements need.
const serverArg = "mcp-server"

// serveMCP runs the server that args name: replay FILE SERVER N | drive | crm | echo.
func serveMCP(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("which MCP server?")
	}
	s := mcp.NewServer(&mcp.Implementation{Name: args[0], Version: "1"}, nil)
	switch args[0] {
	case "replay":
		if len(args) != 4 {
			return errors.New("replay FILE SERVER N")
		}
		if err := replay(s, args[1], args[2], args[3]); err != nil {
			return err
		}
	case "drive":
		drive(s)
	case "crm":
		newCRM(s)
	case "echo":
		mcp.AddTool(s, &mcp.Tool{Name: "echo", Description: "Gives back its text"}, func(_ context.Context, _ *mcp.CallToolRequest, in struct {
			Text string `json:"text"`
		},
		) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text}}}, nil, nil
		})
		return listenMCP(ctx, s)
	default:
		return fmt.Errorf("there is no MCP server %q", args[0])
	}
	return s.Run(ctx, &mcp.StdioTransport{})
}

// listenMCP serves streamable HTTP on a free port of loopback, and prints its address.
func listenMCP(ctx context.Context, s *mcp.Server) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s/mcp\n", l.Addr())
	srv := &http.Server{Handler: mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil), ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	return srv.Serve(l)
}

// replay shows the first n tools of one server of the corpus. They are there to be described, not called.
func replay(s *mcp.Server, file, server, n string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var all []corpusServer
	if err := json.Unmarshal(raw, &all); err != nil {
		return err
	}
	limit, err := strconv.Atoi(n)
	if err != nil {
		return err
	}
	for _, c := range all {
		if c.Server != server {
			continue
		}
		for _, t := range c.Tools[:min(limit, len(c.Tools))] {
			tool := &mcp.Tool{Name: t.Name, Description: t.Description, InputSchema: t.InputSchema}
			if len(t.OutputSchema) > 0 {
				tool.OutputSchema = t.OutputSchema
			}
			s.AddTool(tool, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return nil, errors.New("this is a recording")
			})
		}
	}
	return nil
}

// add adds a tool whose answer is the JSON of what do returns.
func add[In any](s *mcp.Server, name, description string, do func(In) (any, error)) {
	mcp.AddTool(s, &mcp.Tool{Name: name, Description: description}, func(_ context.Context, _ *mcp.CallToolRequest, in In) (*mcp.CallToolResult, any, error) {
		out, err := do(in)
		if err != nil {
			return nil, nil, err
		}
		raw, err := json.Marshal(out)
		if err != nil {
			return nil, nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(raw)}}}, nil, nil
	})
}

type driveFile struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	MimeType string `json:"mimeType"`
	Size     int    `json:"size"`
	Content  string `json:"content,omitempty"`
}

const (
	transcriptID = "1wq8Tn-northwind-kickoff"
	minutesID    = "1xk2Rb-northwind-review"
)

// drive is a small Google Drive with two long documents.
func drive(s *mcp.Server) {
	files := []driveFile{
		{ID: transcriptID, Name: "Kickoff Northwind, transcript", MimeType: "text/plain", Content: transcript()},
		{ID: minutesID, Name: "Review Northwind, minutes", MimeType: "text/plain", Content: minutes()},
		{ID: "0aa1-budget", Name: "Budget Northwind", MimeType: "text/csv", Content: "quarter,eur\nQ1,120000\nQ2,95000\n"},
	}
	for i := range files {
		files[i].Size = len(files[i].Content)
	}
	type byQuery struct {
		Query    string `json:"query" jsonschema:"words that the name or the content has"`
		PageSize int    `json:"pageSize,omitempty" jsonschema:"how many, at most 100"`
	}
	add(s, "search_files", "Search for files in Google Drive by words of their names or contents. Returns id, name, MIME type and size of each.", func(in byQuery) (any, error) {
		var found []driveFile
		for _, f := range files {
			if strings.Contains(strings.ToLower(f.Name+" "+f.Content), strings.ToLower(in.Query)) {
				f.Content = ""
				found = append(found, f)
			}
		}
		return found, nil
	})
	type byID struct {
		DocumentID string `json:"documentId" jsonschema:"the id of the document"`
	}
	add(s, "get_document", "Retrieve a document from Google Drive by its id. Returns the document content, title, and metadata.", func(in byID) (any, error) {
		for _, f := range files {
			if f.ID == in.DocumentID {
				return f, nil
			}
		}
		return nil, fmt.Errorf("there is no document %q", in.DocumentID)
	})
	add(s, "list_files", "List the files of a Google Drive folder.", func(struct {
		FolderID string `json:"folderId,omitempty" jsonschema:"the id of the folder; the root when absent"`
	},
	) (any, error) {
		var list []driveFile
		for _, f := range files {
			f.Content = ""
			list = append(list, f)
		}
		return list, nil
	})
}

type lead struct {
	ID         string `json:"id"`
	Company    string `json:"company"`
	Status     string `json:"status"`
	Transcript string `json:"transcript,omitempty"`
	Summary    string `json:"summary,omitempty"`

	Activities []activity `json:"activities,omitempty"`
}

// newCRM is a small CRM with leads that can be found and changed.
func newCRM(s *mcp.Server) {
	var mu sync.Mutex
	leads := map[string]*lead{
		"00Q-1001": {ID: "00Q-1001", Company: "Northwind Traders", Status: "open"},
		"00Q-1002": {ID: "00Q-1002", Company: "Fabrikam", Status: "open"},
	}
	for i, id := range contoso() {
		leads[id] = contosoLead(id, i)
	}
	add(s, "find_leads", "Find leads in the CRM by the name of their company. Returns id, company and status of each.", func(in struct {
		Company string `json:"company" jsonschema:"part of the name of the company"`
	},
	) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		found := []lead{}
		for _, id := range slices.Sorted(maps.Keys(leads)) {
			if l := *leads[id]; strings.Contains(strings.ToLower(l.Company), strings.ToLower(in.Company)) {
				l.Transcript, l.Summary, l.Activities = "", "", nil
				found = append(found, l)
			}
		}
		return found, nil
	})
	add(s, "get_lead", "Get a lead of the CRM with all its fields.", func(in struct {
		ID string `json:"id" jsonschema:"the id of the lead"`
	},
	) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		if l := leads[in.ID]; l != nil {
			return *l, nil
		}
		return nil, fmt.Errorf("there is no lead %q", in.ID)
	})
	add(s, "update_lead", "Update fields of a lead in the CRM. Fields that are absent stay as they are.", func(in struct {
		ID         string  `json:"id" jsonschema:"the id of the lead"`
		Status     *string `json:"status,omitempty" jsonschema:"open, qualified or lost"`
		Transcript *string `json:"transcript,omitempty" jsonschema:"the transcript of a meeting, whole"`
		Summary    *string `json:"summary,omitempty" jsonschema:"what matters, in a few lines"`
	},
	) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		l := leads[in.ID]
		if l == nil {
			return nil, fmt.Errorf("there is no lead %q", in.ID)
		}
		if in.Status != nil {
			l.Status = *in.Status
		}
		if in.Transcript != nil {
			l.Transcript = *in.Transcript
		}
		if in.Summary != nil {
			l.Summary = *in.Summary
		}
		return map[string]any{"id": l.ID, "updated": true}, nil
	})
}

const transcriptSize = 50 << 10

// transcript is a meeting of 50 KB, the same in every run.
func transcript() string {
	people := []string{"Marta", "Jonas", "Priya", "Tom"}
	topics := []string{"the migration of the old order system", "who signs off the pilot", "the price for the second year", "support hours in the summer", "the import of customer data", "the date of the first delivery", "access for the auditors"}
	remarks := []string{
		"I would rather see a written plan for %s before we promise anything to the board.",
		"Last week we agreed that %s is the first thing that has to be settled.",
		"Our colleagues in Lisbon have looked at %s and found two open questions.",
		"For us %s is not urgent, as long as nobody is surprised by it later on.",
		"Could you send me the figures on %s by Thursday? I need them for the forecast.",
	}
	var b strings.Builder
	for i := 0; b.Len() < transcriptSize; i++ {
		fmt.Fprintf(&b, "[%02d:%02d] %s: ", i/3/60, i/3%60, people[(i*i+i/5)%len(people)])
		fmt.Fprintf(&b, remarks[(i*3+i/7)%len(remarks)]+"\n", topics[(i*5+i/11)%len(topics)])
	}
	return b.String()[:transcriptSize]
}
