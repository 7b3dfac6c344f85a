package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/observe/tracing"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// mcpCall is what the methods and tools of one scope work with.
type mcpCall struct {
	s       *server
	scope   *mcpScope
	session *mcpSession // nil in the era without sessions
	watched watchedResources
}

// ownTools are the names of the tools that are ours.
var ownTools = map[string]bool{
	executeCodeTool: true, "search_tools": true, "list_servers": true, "bash": true, "read_file": true, "write_file": true, "str_replace": true,
	"ls": true, "glob": true, "grep": true, "activate_skill": true, "read_skill_file": true, "search_skills": true,
}

// codeOnly are those of them that are only for agents that call tools by code.
var codeOnly = map[string]bool{"search_tools": true, "list_servers": true}

// executeCodeTool is left out where the tenant's settings say so.
const executeCodeTool = "execute_code"

func (m *mcpCall) addTools(srv *mcp.Server) {
	addTool(srv, m, executeCodeTool, "Run a program in the thread's sandbox. "+
		"In TypeScript and Python, the MCP tools are there as typed functions; prefer one program that loops over many single calls.", m.executeCode)
	addTool(srv, m, "search_tools", "Find tools by what they should do: at most 15, best first.", m.searchTools)
	addTool(srv, m, "list_servers", "List the MCP servers whose tools can be used.", m.listServers)
	addTool(srv, m, "bash", "Run a shell command in the thread's sandbox, in /mnt/user-data/workspace.", m.bash)
	addTool(srv, m, "read_file", "Read a text file by lines.", m.readFile)
	addTool(srv, m, "write_file", "Write a text file; parent folders are made.", m.writeFile)
	addTool(srv, m, "str_replace", "Replace a text in a file. It has to be there once, unless replace_all is set.", m.strReplace)
	addTool(srv, m, "ls", "List a folder.", m.ls)
	addTool(srv, m, "glob", "Find files by a pattern such as **/*.py.", m.glob)
	addTool(srv, m, "grep", "Find lines in files.", m.grep)
}

// enter returns the context in which a request is handled: with the caller as this request found it, and
// ended by the end of the session.
func (m *mcpCall) enter(ctx context.Context, extra *mcp.RequestExtra) (context.Context, context.CancelFunc) {
	// The request that began a session is long over; this one's parts that the log shows are enough.
	x := &exchange{caller: m.scope.caller, known: true, req: &http.Request{Method: http.MethodPost, URL: &url.URL{Path: "/mcp/" + m.scope.thread}}}
	if extra != nil {
		x.id = extra.Header.Get("X-Request-Id")
	}
	x.caller.RequestID = x.id
	if extra != nil && m.s.o.Tracer != nil {
		ctx = m.s.o.Tracer.From(ctx, extra.Header)
		x.caller.TraceID = tracing.LinkOf(ctx).TraceID()
	}
	ctx, cancel := context.WithCancel(context.WithValue(ctx, exchangeKey{}, x))
	if m.session == nil {
		return ctx, cancel
	}
	stop := context.AfterFunc(m.session.calls, cancel)
	return ctx, func() { stop(); cancel() }
}

// addTool adds a tool whose answer is a text: a string as it is, all else as JSON. An error of a use
// case is the tool's error, for the agent to read.
func addTool[I any](srv *mcp.Server, m *mcpCall, name, say string, call func(context.Context, I) (any, error)) {
	mcp.AddTool(srv, &mcp.Tool{Name: name, Description: say}, func(ctx context.Context, req *mcp.CallToolRequest, in I) (*mcp.CallToolResult, any, error) {
		defer reportTime(ctx, req)()
		out, err := call(ctx, in)
		if err != nil {
			return m.failed(ctx, err), nil, nil
		}
		if text, ok := out.(string); ok {
			return toolText(text, false), nil, nil
		}
		var b strings.Builder
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(out); err != nil {
			return nil, nil, err
		}
		return toolText(strings.TrimSuffix(b.String(), "\n"), false), nil, nil
	})
}

func (m *mcpCall) failed(ctx context.Context, err error) *mcp.CallToolResult {
	p := m.s.problem(ctx, err)
	return toolText(p.Code+": "+p.Detail, true)
}

// progressEvery is how often a client that asked for it hears that its call is still running.
const progressEvery = time.Second

// reportTime tells a client that asked for progress how many seconds its call has been running. stop
// returns when nothing more is sent.
func reportTime(ctx context.Context, req *mcp.CallToolRequest) (stop func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		began := time.Now()
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			ran := time.Since(began).Truncate(time.Second)
			p := &mcp.ProgressNotificationParams{ProgressToken: token, Progress: ran.Seconds(), Message: "running for " + ran.String()}
			if req.Session.NotifyProgress(ctx, p) != nil {
				return // the client stopped listening
			}
		}
	}()
	return func() { cancel(); <-done }
}

func toolText(text string, isError bool) *mcp.CallToolResult {
	return &mcp.CallToolResult{IsError: isError, Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

// killTime bounds the end of an exec whose client does not want it any more.
const killTime = 10 * time.Second

// wait waits for an exec. When the client takes its request back, the exec ends too.
func (m *mcpCall) wait(ctx context.Context, id string) (sandbox.Result, error) {
	res, err := m.s.o.Execs.Wait(ctx, m.caller(ctx), m.scope.thread, id)
	if err != nil && ctx.Err() != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
		defer cancel()
		if e := m.s.o.Execs.Kill(ctx, m.caller(ctx), m.scope.thread, id); e != nil {
			_ = m.s.problem(ctx, e) // logs it
		}
	}
	return res, err
}

func (m *mcpCall) caller(ctx context.Context) sandbox.Caller { return callerOf(ctx) }

type mcpCode struct {
	Code     string  `json:"code" jsonschema:"the program"`
	Language string  `json:"language,omitempty" jsonschema:"typescript, javascript, python or bash"`
	Timeout  float64 `json:"timeout,omitempty" jsonschema:"seconds, at most 120"`
}

func (m *mcpCall) executeCode(ctx context.Context, in mcpCode) (any, error) {
	id, err := m.s.o.Runs.RunCode(ctx, m.caller(ctx), m.scope.thread, sandbox.Code{Text: in.Code, Language: in.Language, Timeout: seconds(in.Timeout)})
	if err != nil {
		return nil, err
	}
	res, err := m.wait(ctx, id)
	if err != nil {
		return nil, err
	}
	return shownCode(&res), nil
}

type mcpSearch struct {
	Query  string `json:"query" jsonschema:"what the tool should do"`
	Server string `json:"server,omitempty" jsonschema:"only tools of this server"`
	Detail string `json:"detail,omitempty" jsonschema:"name, desc (default) or full"`
}

func (m *mcpCall) searchTools(ctx context.Context, in mcpSearch) (any, error) {
	switch in.Detail {
	case "":
		in.Detail = "desc"
	case "name", "desc", "full":
	default:
		return nil, sandbox.InvalidField("detail", "has to be name, desc or full")
	}
	return m.s.o.Tools.SearchTools(ctx, m.caller(ctx), m.scope.thread, sandbox.ToolQuery{Query: in.Query, Server: in.Server, Detail: in.Detail})
}

func (m *mcpCall) listServers(ctx context.Context, _ struct{}) (any, error) {
	servers, err := m.s.o.Tools.ToolServers(ctx, m.caller(ctx), m.scope.thread)
	if err != nil {
		return nil, err
	}
	return sumServers(servers), nil
}

type mcpBash struct {
	Command string  `json:"command"`
	Timeout float64 `json:"timeout_s,omitempty" jsonschema:"seconds, 60 when absent, at most 3600"`
}

func (m *mcpCall) bash(ctx context.Context, in mcpBash) (any, error) {
	id, err := m.s.o.Runs.RunCommand(ctx, m.caller(ctx), m.scope.thread, sandbox.Command{Shell: in.Command, Timeout: seconds(in.Timeout)})
	if err != nil {
		return nil, err
	}
	res, err := m.wait(ctx, id)
	if err != nil {
		return nil, err
	}
	return shown(&res), nil
}

type mcpRead struct {
	Path   string `json:"path" jsonschema:"such as /mnt/user-data/workspace/a.txt"`
	Offset int    `json:"offset,omitempty" jsonschema:"lines to pass over"`
	Limit  int    `json:"limit,omitempty" jsonschema:"lines to give, 2000 when absent"`
}

// readFile answers with the text alone when that is the whole file.
func (m *mcpCall) readFile(ctx context.Context, in mcpRead) (any, error) {
	text, err := view(ctx, m.s, m.scope.thread, func(f *paths.FS) (paths.Text, error) { return f.Read(in.Path, in.Offset, in.Limit) })
	if err != nil {
		return nil, err
	}
	if text.Encoding == "utf-8" && in.Offset == 0 && text.NextOffset == nil && !text.Truncated {
		return text.Content, nil
	}
	return text, nil
}

type mcpWrite struct {
	Path    string `json:"path"`
	Content string `json:"content"`
	Append  bool   `json:"append,omitempty"`
}

func (m *mcpCall) writeFile(ctx context.Context, in mcpWrite) (any, error) {
	return m.s.put(ctx, m.scope.thread, in.Path, func(f *paths.FS) (paths.Written, error) {
		return f.Write(ctx, in.Path, strings.NewReader(in.Content), in.Append)
	})
}

type mcpReplace struct {
	Path       string `json:"path"`
	Old        string `json:"old_str"`
	New        string `json:"new_str"`
	ReplaceAll bool   `json:"replace_all,omitempty"`
}

func (m *mcpCall) strReplace(ctx context.Context, in mcpReplace) (any, error) {
	var e paths.Edited
	err := m.s.o.Files.ChangeFiles(ctx, m.caller(ctx), m.scope.thread, audit.ActionFileEdit, in.Path, func(f *paths.FS) (int64, error) {
		var err error
		e, err = f.Edit(ctx, in.Path, in.Old, in.New, in.ReplaceAll)
		return e.Bytes, err
	})
	return e, err
}

type mcpList struct {
	Path  string `json:"path"`
	Depth int    `json:"depth,omitempty" jsonschema:"levels to go down, 1 when absent"`
}

func (m *mcpCall) ls(ctx context.Context, in mcpList) (any, error) {
	return view(ctx, m.s, m.scope.thread, func(f *paths.FS) (paths.Listing, error) { return f.List(ctx, in.Path, in.Depth, 0) })
}

type mcpGlob struct {
	Pattern string `json:"pattern"`
	Path    string `json:"path,omitempty" jsonschema:"folder, /mnt/user-data when absent"`
}

func (m *mcpCall) glob(ctx context.Context, in mcpGlob) (any, error) {
	return view(ctx, m.s, m.scope.thread, func(f *paths.FS) (paths.Listing, error) { return f.Glob(ctx, orUserData(in.Path), in.Pattern) })
}

type mcpGrep struct {
	Pattern    string `json:"pattern"`
	Path       string `json:"path,omitempty" jsonschema:"file or folder, /mnt/user-data when absent"`
	Regex      bool   `json:"regex,omitempty" jsonschema:"the pattern is an RE2 expression"`
	Glob       string `json:"glob,omitempty" jsonschema:"only files that match"`
	IgnoreCase bool   `json:"ignore_case,omitempty"`
	Context    int    `json:"context,omitempty" jsonschema:"lines before and after, at most 10"`
	Max        int    `json:"max,omitempty" jsonschema:"100 when absent, at most 1000"`
}

func (m *mcpCall) grep(ctx context.Context, in mcpGrep) (any, error) {
	o := paths.GrepOptions{Pattern: in.Pattern, Regexp: in.Regex, Glob: in.Glob, IgnoreCase: in.IgnoreCase, Context: in.Context, Max: in.Max}
	return view(ctx, m.s, m.scope.thread, func(f *paths.FS) (paths.Matches, error) { return f.Grep(ctx, orUserData(in.Path), o) })
}

func orUserData(p string) string {
	if p == "" {
		return sandbox.UserDataDir
	}
	return p
}
