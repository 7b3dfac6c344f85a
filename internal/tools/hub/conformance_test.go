package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/hub/login"
)

// conformanceArgument is the first argument with which a test binary becomes the client of the official
// conformance suite. The suite adds the URL of its server, and says in the environment what to do there.
const conformanceArgument = "conformance-client"

// conformanceClient drives a hub as agents do: it lists the tools of a server, and calls them.
func conformanceClient(url string) int {
	if err := conform(url, os.Getenv("MCP_CONFORMANCE_SCENARIO"), os.Getenv("MCP_CONFORMANCE_CONTEXT")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func conform(url, scenario, wishes string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	defer cancel()
	dir, err := os.MkdirTemp("", "mcphub-conformance-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	oauth, err := conformanceLogin(scenario, wishes)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "extensions_config.json")
	if err := os.WriteFile(path, fmt.Appendf(nil, `{"mcpServers":{"suite":{"type":"http","url":%q%s}}}`, url, oauth), 0o600); err != nil {
		return err
	}
	h, err := Open(Options{
		ConfigPath: path, StateDir: filepath.Join(dir, "state"), LookupEnv: func(string) (string, bool) { return "", false },
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		return err
	}
	defer h.Close()
	h.pool.dialer.patience = 20 * time.Second // on a loaded machine, too, the suite judges what it is asked first
	p := &person{h: h}
	var set sandbox.ToolSet
	err = p.logsInFor(ctx, func() error {
		if set, err = h.Catalog.Tools(ctx, alice); err == nil && len(set.Tools) == 0 { // why there are none
			_, err = h.Servers.ServerTools(ctx, sandbox.Caller{Owner: alice.Owner}, "suite")
		}
		return err
	})
	if err != nil {
		return err
	}
	calls, err := conformanceCalls(set.Tools, scenario, wishes)
	if err != nil {
		return err
	}
	for _, c := range calls {
		var res sandbox.ToolResult
		err := p.logsInFor(ctx, func() error {
			res, err = p.calls(ctx, c, scenario == "sep-2322-client-request-state")
			return err
		})
		fmt.Fprintf(os.Stderr, "%s: %v %.500s\n", c.Name, err, res.Result)
	}
	return nil
}

// person does what people do with `skerry mcp login`: opens the URL, agrees, and hands over where the
// browser was sent.
type person struct {
	h      *Hub
	logins int
}

// logsInFor tries something, logs in when the hub says that a login is needed, and tries again. It is
// for the hub to end that: this person has a lot of patience.
func (p *person) logsInFor(ctx context.Context, try func() error) error {
	for {
		err := try()
		if !errors.Is(err, login.ErrNeeded) || p.logins >= 10 {
			return err
		}
		p.logins++
		if err := p.login(ctx, "suite"); err != nil {
			return err
		}
	}
}

// calls calls a tool: as code does, without a person who answers, or as a client behind /mcp does that has its
// user there. What a server asks such a client is passed on to it, and its answers are passed back; they
// are the client's business, so this one remembers for each call what the server asked it to repeat.
func (p *person) calls(ctx context.Context, c conformanceCall, there bool) (sandbox.ToolResult, error) {
	tool := sandbox.Tool{Server: "suite", Name: c.Name}
	if !there {
		return p.h.Catalog.Call(ctx, alice, tool, c.Arguments)
	}
	params := map[string]any{"_meta": map[string]any{mcp.MetaKeyClientCapabilities: map[string]any{"elicitation": map[string]any{}}}}
	for range 5 {
		raw, err := json.Marshal(params)
		if err != nil {
			return sandbox.ToolResult{}, err
		}
		res, err := p.h.Catalog.CallWatched(ctx, alice, tool, c.Arguments, sandbox.ToolWatch{Params: raw})
		var asks struct {
			Requests map[string]json.RawMessage `json:"inputRequests"`
			State    *string                    `json:"requestState"`
		}
		if err != nil || json.Unmarshal(res.Raw, &asks) != nil || len(asks.Requests) == 0 {
			return res, err
		}
		answers := map[string]any{}
		for name := range asks.Requests {
			answers[name] = map[string]any{"action": "accept", "content": map[string]any{"confirmed": true}}
		}
		params["inputResponses"] = answers
		delete(params, "requestState")
		if asks.State != nil {
			params["requestState"] = *asks.State
		}
	}
	return sandbox.ToolResult{}, errors.New("the server asks again and again")
}

func (p *person) login(ctx context.Context, server string) error {
	begun, err := p.h.Logins.BeginLogin(ctx, sandbox.Caller{Owner: alice.Owner}, server, "http://127.0.0.1:1/callback")
	if err != nil {
		return err
	}
	to, err := browse(ctx, begun.URL)
	if err != nil {
		return err
	}
	return p.h.Logins.FinishLogin(ctx, sandbox.Caller{Owner: alice.Owner}, server, to)
}

// browse opens a page that sends the browser on at once, and returns where to.
func browse(ctx context.Context, url string) (string, error) {
	browser := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	res, err := browser.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusFound {
		return "", fmt.Errorf("the page to log in: %s", res.Status)
	}
	return res.Header.Get("Location"), nil
}

// conformanceLogin returns "oauth" as a scenario wants it: what was registered beforehand is configured, all
// else is left to what the server says of itself.
func conformanceLogin(scenario, wishes string) (string, error) {
	var known struct {
		ID     string `json:"client_id"`
		Secret string `json:"client_secret"`
		Key    string `json:"private_key_pem"`
		JWT    string `json:"valid_jwt"`
	}
	if wishes != "" {
		if err := json.Unmarshal([]byte(wishes), &known); err != nil {
			return "", err
		}
	}
	s := login.Settings{ClientID: known.ID, ClientSecret: known.Secret, PrivateKey: known.Key, Assertion: known.JWT}
	switch scenario {
	case "auth/basic-cimd":
		s.MetadataDocument = "https://conformance-test.local/client-metadata.json"
	case "auth/client-credentials-basic", "auth/client-credentials-jwt":
		s.Grant = login.GrantClient
	case "auth/wif-jwt-bearer":
		s.Grant = login.GrantAssertion
	case "auth/pre-registration":
	default:
		return "", nil
	}
	text, err := json.Marshal(s)
	return `,"oauth":` + string(text), err
}

type conformanceCall struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// conformanceCalls returns the calls that a scenario wants made: the ones that it names itself, else one of
// each tool.
func conformanceCalls(tools []sandbox.Tool, scenario, wishes string) ([]conformanceCall, error) {
	if scenario == "json-schema-2020-12-preservation" {
		for _, t := range tools {
			if t.Name == "json_schema_2020_12_tool" {
				return []conformanceCall{{"json_schema_echo", fmt.Appendf(nil, `{"schema":%s}`, t.Input)}}, nil
			}
		}
		return nil, fmt.Errorf("no json_schema_2020_12_tool")
	}
	var wants struct {
		ToolCalls []conformanceCall `json:"toolCalls"`
	}
	if wishes != "" {
		if err := json.Unmarshal([]byte(wishes), &wants); err != nil {
			return nil, err
		}
	}
	if wants.ToolCalls != nil {
		return wants.ToolCalls, nil
	}
	var calls []conformanceCall
	for _, t := range tools {
		args := "{}"
		switch {
		case t.Name == "add_numbers":
			args = `{"a":5,"b":3}`
		case strings.Contains(string(t.Input), `"region"`):
			args = `{"region":"us-west1"}`
		}
		calls = append(calls, conformanceCall{t.Name, json.RawMessage(args)})
	}
	return calls, nil
}

// conformanceSuite returns node and the program of the official suite. In CI a missing one is a failure.
func conformanceSuite(t *testing.T) (node, program string) {
	t.Helper()
	server := realServer(t, "conformance")
	node = filepath.Join(filepath.Dir(server), "../../../node/bin/node")
	if _, err := os.Stat(node); err != nil {
		t.Fatalf("the suite needs Node 22, which scripts/install.sh mcp installs beside it: %v", err)
	}
	return node, server
}

// check is what the suite says about one of its checks.
type conformanceCheck struct {
	ID      string `json:"id"`
	Status  string `json:"status"`
	Message string `json:"errorMessage"`
}

// TestConformanceClient: the official suite's scenarios for clients, against the hub, in both eras. What
// fails has to stand in the baseline with its reason, and what stands there has to fail.
func TestConformanceClient(t *testing.T) {
	t.Parallel()
	node, suite := conformanceSuite(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("testdata/conformance-client.json")
	if err != nil {
		t.Fatal(err)
	}
	var baseline map[string]map[string]string // by version and scenario, the reason
	if err := json.Unmarshal(text, &baseline); err != nil {
		t.Fatal(err)
	}
	for version, expected := range baseline {
		t.Run(version, func(t *testing.T) {
			out := t.TempDir()
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, node, suite, "client", "--command", self+" "+conformanceArgument, "--requirements", version, "-o", out)
			said, err := cmd.CombinedOutput() // it fails when a scenario does
			if ctx.Err() != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			results := conformanceResults(t, out)
			if len(results) < 20 || !bytes.Contains(said, []byte("SUITE SUMMARY")) {
				t.Fatalf("%d scenarios: %v\n%s", len(results), err, said)
			}
			passed, checks := 0, 0
			for _, scenario := range sortedKeys(results) {
				failed, ok := results[scenario].failed, results[scenario].passed
				reason, known := expected[scenario]
				switch {
				case len(failed) > 0 && !known:
					t.Errorf("%s fails:\n  %s", scenario, strings.Join(failed, "\n  "))
				case len(failed) == 0 && known:
					t.Errorf("%s passes; it stands in the baseline: %s", scenario, reason)
				case known && len(reason) < 20:
					t.Errorf("%s: the baseline gives no reason", scenario)
				}
				if len(failed) == 0 {
					passed++
				}
				checks += ok
			}
			for scenario := range expected {
				if _, ran := results[scenario]; !ran {
					t.Errorf("the baseline has %s, which the suite does not", scenario)
				}
			}
			t.Logf("%s: %d of %d scenarios pass, %d checks; %d are in the baseline", version, passed, len(results), checks, len(expected))
		})
	}
}

type conformanceResult struct {
	failed []string
	passed int
}

// conformanceResults reads what the suite wrote: a folder for each scenario, named after it and the time.
func conformanceResults(t *testing.T, dir string) map[string]conformanceResult {
	t.Helper()
	results := map[string]conformanceResult{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "checks.json" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var checks []conformanceCheck
		if err := json.Unmarshal(text, &checks); err != nil {
			return err
		}
		folder, err := filepath.Rel(dir, filepath.Dir(path))
		if err != nil {
			return err
		}
		scenario := folder[:len(folder)-len("-2006-01-02T15-04-05-000Z")]
		r := results[scenario]
		for _, c := range checks {
			switch c.Status {
			case "FAILURE", "WARNING":
				r.failed = append(r.failed, c.ID+": "+c.Message)
			case "SUCCESS":
				r.passed++
			}
		}
		results[scenario] = r
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return results
}

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
