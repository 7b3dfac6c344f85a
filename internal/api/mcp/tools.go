package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/platform/every"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/service"
	"github.com/skerry-sandbox/skerry/internal/workspace/paths"
)

// tools are our own tools.
type tools struct{ *scoped }

// ownTools are the names of the tools that are ours.
var ownTools = map[string]bool{
	executeCodeTool: true, "search_tools": true, "list_servers": true, "bash": true, "read_file": true, "write_file": true, "str_replace": true,
	"ls": true, "glob": true, "grep": true, "activate_skill": true, "read_skill_file": true, "search_skills": true, runSkillTool: true, callSkillTool: true,
	"activate_tool": true, "put_away_tool": true,
}

// codeOnly are those of them that are only for agents that call tools by code.
var codeOnly = map[string]bool{"search_tools": true, "list_servers": true}

// executeCodeTool is left out where the tenant's settings say so.
const executeCodeTool = "execute_code"

func (m *tools) add(srv *sdk.Server) {
	addTool(srv, m.scoped, executeCodeTool, "Run a program in the thread's sandbox. "+
		"In TypeScript and Python, the MCP tools are there as typed functions; prefer one program that loops over many single calls. "+
		"Only what it prints comes back: filter, cut or count results before you print them.", m.executeCode)
	addTool(srv, m.scoped, "search_tools", "Find tools by what they should do, best first. A description that ends in … is whole in the file at wrapper_path.", m.searchTools)
	addTool(srv, m.scoped, "list_servers", "List the MCP servers whose tools can be used.", m.listServers)
	m.addActivation(srv)
	addTool(srv, m.scoped, "bash", "Run a shell command in the thread's sandbox, in /mnt/user-data/workspace.", m.bash)
	addTool(srv, m.scoped, runSkillTool, "Run a script of a skill in the sandbox.", m.runSkill)
	addTool(srv, m.scoped, "read_file", "Read a text file by lines.", m.readFile)
	addTool(srv, m.scoped, "write_file", "Write a text file; parent folders are made.", m.writeFile)
	addTool(srv, m.scoped, "str_replace", "Replace a text in a file. It has to be there once, unless replace_all is set.", m.strReplace)
	addTool(srv, m.scoped, "ls", "List a folder.", m.ls)
	addTool(srv, m.scoped, "glob", "Find files by a pattern such as **/*.py.", m.glob)
	addTool(srv, m.scoped, "grep", "Find lines in files.", m.grep)
}

// addTool adds a tool whose answer is a text: a string as it is, all else as JSON. An error of a use
// case is the tool's error, for the agent to read.
func addTool[I any](srv *sdk.Server, m *scoped, name, say string, call func(context.Context, I) (any, error)) {
	sdk.AddTool(srv, &sdk.Tool{Name: name, Description: say}, func(ctx context.Context, req *sdk.CallToolRequest, in I) (*sdk.CallToolResult, any, error) {
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

// progressEvery is how often a client that asked for it hears that its call is still running.
const progressEvery = time.Second

// reportTime tells a client that asked for progress how many seconds its call has been running. stop
// returns when nothing more is sent.
func reportTime(ctx context.Context, req *sdk.CallToolRequest) (stop func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		began := time.Now()
		for range every.Tick(ctx, progressEvery) {
			ran := time.Since(began).Truncate(time.Second)
			p := &sdk.ProgressNotificationParams{ProgressToken: token, Progress: ran.Seconds(), Message: "running for " + ran.String()}
			if req.Session.NotifyProgress(ctx, p) != nil {
				return // the client stopped listening
			}
		}
	}()
	return func() { cancel(); <-done }
}

func toolText(text string, isError bool) *sdk.CallToolResult {
	return &sdk.CallToolResult{IsError: isError, Content: []sdk.Content{&sdk.TextContent{Text: text}}}
}

// killTime bounds the end of an exec whose client does not want it any more.
const killTime = 10 * time.Second

// wait waits for an exec. When the client takes its request back, the exec ends too.
func (m *tools) wait(ctx context.Context, id string) (sandbox.Result, error) {
	res, err := m.o.Execs.Wait(ctx, m.caller(ctx), m.scope.Thread, id)
	if err != nil && ctx.Err() != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
		defer cancel()
		if e := m.o.Execs.Kill(ctx, m.caller(ctx), m.scope.Thread, id); e != nil {
			_, _ = m.o.Host.Describe(ctx, e) // logs it
		}
	}
	return res, err
}

type codeIn struct {
	Code        string  `json:"code" jsonschema:"the program; in wasm, the path of a .wasm file of the thread, or a module in base64"`
	Language    string  `json:"language,omitempty" jsonschema:"typescript, javascript, python, bash or wasm; also ts, js, py or sh"`
	Description string  `json:"description,omitempty" jsonschema:"what the program does, in a sentence, for the log"`
	Timeout     float64 `json:"timeout,omitempty" jsonschema:"seconds, at most 120"`
}

func (m *tools) executeCode(ctx context.Context, in codeIn) (any, error) {
	id, err := m.o.Runs.RunCode(ctx, m.caller(ctx), m.scope.Thread, sandbox.Code{Text: in.Code, Language: in.Language, Description: in.Description, Timeout: seconds(in.Timeout)})
	if err != nil {
		return nil, err
	}
	res, err := m.wait(ctx, id)
	if err != nil {
		return nil, err
	}
	return service.ShownCode(&res), nil
}

type searchIn struct {
	Query  string `json:"query" jsonschema:"what the tool should do"`
	Server string `json:"server,omitempty" jsonschema:"only tools of this server"`
	Detail string `json:"detail,omitempty" jsonschema:"name, desc (default) or full: the parameters too"`
	Limit  int    `json:"limit,omitempty" jsonschema:"how many to describe, at most 15; when absent, full describes up to 4 and names the next ones"`

	OutputSchema bool `json:"output_schema,omitempty" jsonschema:"with full: the schemas of results too"`
}

func (m *tools) searchTools(ctx context.Context, in searchIn) (any, error) {
	q := sandbox.ToolQuery{Query: in.Query, Server: in.Server, Detail: cmp.Or(in.Detail, sandbox.DetailDesc), Limit: in.Limit, OutputSchema: in.OutputSchema}
	return m.o.Tools.SearchTools(ctx, m.caller(ctx), m.scope.Thread, q)
}

func (m *tools) listServers(ctx context.Context, _ struct{}) (any, error) {
	servers, err := m.o.Tools.ToolServers(ctx, m.caller(ctx), m.scope.Thread)
	if err != nil {
		return nil, err
	}
	return service.ListServers(servers), nil
}

type bashIn struct {
	Command string  `json:"command"`
	Timeout float64 `json:"timeout_s,omitempty" jsonschema:"seconds, 60 when absent, at most 3600"`
}

func (m *tools) bash(ctx context.Context, in bashIn) (any, error) {
	id, err := m.o.Runs.RunCommand(ctx, m.caller(ctx), m.scope.Thread, sandbox.Command{Shell: in.Command, Timeout: seconds(in.Timeout)})
	if err != nil {
		return nil, err
	}
	res, err := m.wait(ctx, id)
	if err != nil {
		return nil, err
	}
	return service.Shown(&res), nil
}

type runSkillIn struct {
	Skill   string   `json:"skill" jsonschema:"the name of a skill"`
	Script  string   `json:"script" jsonschema:"relative to the skill's folder, such as scripts/extract.py"`
	Args    []string `json:"args,omitempty"`
	Timeout float64  `json:"timeout_s,omitempty" jsonschema:"seconds, 60 when absent, at most 3600"`
}

func (m *tools) runSkill(ctx context.Context, in runSkillIn) (any, error) {
	id, err := m.o.Runs.RunScript(ctx, m.caller(ctx), m.scope.Thread, sandbox.Script{Skill: in.Skill, Path: in.Script, Args: in.Args, Timeout: seconds(in.Timeout)})
	if err != nil {
		return nil, err
	}
	res, err := m.wait(ctx, id)
	if err != nil {
		return nil, err
	}
	return service.Shown(&res), nil
}

type readIn struct {
	Path   string `json:"path" jsonschema:"such as /mnt/user-data/workspace/a.txt"`
	Offset int    `json:"offset,omitempty" jsonschema:"lines to pass over"`
	Limit  int    `json:"limit,omitempty" jsonschema:"lines to give, 2000 when absent"`
}

// readFile answers with the text alone when that is the whole file.
func (m *tools) readFile(ctx context.Context, in readIn) (any, error) {
	text, err := service.View(ctx, m.o.Files, m.caller(ctx), m.scope.Thread, func(f *paths.FS) (paths.Text, error) { return f.Read(in.Path, in.Offset, in.Limit) })
	if err != nil {
		return nil, err
	}
	if text.Encoding == "utf-8" && in.Offset == 0 && text.NextOffset == nil && !text.Truncated {
		return text.Content, nil
	}
	return text, nil
}

// written is what a model reads of a write: no tool here takes an ETag.
type written struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
}

type writeIn struct {
	Path    string `json:"path"`
	Content string `json:"content"`
	Append  bool   `json:"append,omitempty"`
}

func (m *tools) writeFile(ctx context.Context, in writeIn) (any, error) {
	w, err := service.Put(ctx, m.o.Files, m.caller(ctx), m.scope.Thread, in.Path, func(f *paths.FS) (paths.Written, error) {
		return f.Write(ctx, in.Path, strings.NewReader(in.Content), in.Append)
	})
	return written{w.Path, w.Bytes}, err
}

type replaceIn struct {
	Path       string `json:"path"`
	Old        string `json:"old_str"`
	New        string `json:"new_str"`
	ReplaceAll bool   `json:"replace_all,omitempty"`
}

func (m *tools) strReplace(ctx context.Context, in replaceIn) (any, error) {
	var e paths.Edited
	err := m.o.Files.ChangeFiles(ctx, m.caller(ctx), m.scope.Thread, audit.ActionFileEdit, in.Path, func(f *paths.FS) (int64, error) {
		var err error
		e, err = f.Edit(ctx, in.Path, in.Old, in.New, in.ReplaceAll)
		return e.Bytes, err
	})
	return e, err
}

type listIn struct {
	Path  string `json:"path"`
	Depth int    `json:"depth,omitempty" jsonschema:"levels to go down, 1 when absent"`
}

func (m *tools) ls(ctx context.Context, in listIn) (any, error) {
	return service.View(ctx, m.o.Files, m.caller(ctx), m.scope.Thread, func(f *paths.FS) (paths.Listing, error) { return f.List(ctx, in.Path, in.Depth, 0) })
}

type globIn struct {
	Pattern string `json:"pattern"`
	Path    string `json:"path,omitempty" jsonschema:"folder, /mnt/user-data when absent"`
}

func (m *tools) glob(ctx context.Context, in globIn) (any, error) {
	return service.View(ctx, m.o.Files, m.caller(ctx), m.scope.Thread, func(f *paths.FS) (paths.Listing, error) { return f.Glob(ctx, orUserData(in.Path), in.Pattern) })
}

type grepIn struct {
	Pattern    string `json:"pattern"`
	Path       string `json:"path,omitempty" jsonschema:"file or folder, /mnt/user-data when absent"`
	Regex      bool   `json:"regex,omitempty" jsonschema:"the pattern is an RE2 expression"`
	Glob       string `json:"glob,omitempty" jsonschema:"only files that match"`
	IgnoreCase bool   `json:"ignore_case,omitempty"`
	Context    int    `json:"context,omitempty" jsonschema:"lines before and after, at most 10"`
	Max        int    `json:"max,omitempty" jsonschema:"100 when absent, at most 1000"`
}

func (m *tools) grep(ctx context.Context, in grepIn) (any, error) {
	o := paths.GrepOptions{Pattern: in.Pattern, Regexp: in.Regex, Glob: in.Glob, IgnoreCase: in.IgnoreCase, Context: in.Context, Max: in.Max}
	return service.View(ctx, m.o.Files, m.caller(ctx), m.scope.Thread, func(f *paths.FS) (paths.Matches, error) { return f.Grep(ctx, orUserData(in.Path), o) })
}

func orUserData(p string) string {
	if p == "" {
		return sandbox.UserDataDir
	}
	return p
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
