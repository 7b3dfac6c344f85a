package execs

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"

	"github.com/skerry-sandbox/skerry/internal/api/rest/access"
	"github.com/skerry-sandbox/skerry/internal/api/rest/eventstream"
	"github.com/skerry-sandbox/skerry/internal/api/rest/exchange"
	"github.com/skerry-sandbox/skerry/internal/api/rest/problem"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/service"
)

// execRoutes are the routes of execs.
type execRoutes struct {
	api       *route.API
	runs      service.Runs
	execs     service.Execs
	access    *access.Authenticator
	heartbeat time.Duration
}

// execBody is the body of POST /api/threads/{t}/exec.
type execBody struct {
	Command        string            `json:"command,omitempty" maxLength:"131071" doc:"Run by a shell; either this or argv"`
	Argv           []string          `json:"argv,omitempty" maxItems:"1024" doc:"Program and arguments, run without a shell"`
	Cwd            string            `json:"cwd,omitempty" maxLength:"4096" doc:"/mnt/user-data/workspace when absent"`
	Env            map[string]string `json:"env,omitempty" doc:"For this run only. Values of 8 bytes and more are hidden here in the audit log; with redact_env in output, too"`
	EnvSecrets     map[string]string `json:"env_secrets,omitempty" doc:"Variables by the names of secrets, for this run only; the code has their values"`
	RedactEnv      bool              `json:"redact_env,omitempty" doc:"Hide values of 8 bytes and more of env, and of the sandbox's env, in output. Those of env_secrets are always hidden"`
	Stdin          string            `json:"stdin,omitempty" maxLength:"8388608"`
	KeepStdin      *bool             `json:"keep_stdin,omitempty" doc:"Leave stdin open for POST …/stdin; true for a background exec when absent"`
	TimeoutSeconds float64           `json:"timeout_s,omitempty" minimum:"0" maximum:"3600" doc:"60 when absent or 0"`
	Background     bool              `json:"background,omitempty" doc:"Answer at once, with status running"`
	MaxOutputBytes int64             `json:"max_output_bytes,omitempty" minimum:"0" maximum:"16777216" doc:"Each of stdout and stderr; 1048576 when absent or 0"`
	ReportFiles    bool              `json:"report_files,omitempty" doc:"List the files under /mnt/user-data that changed"`
	LeaveProcesses bool              `json:"leave_processes,omitempty" doc:"What outlives the command stays in the sandbox, such as a server behind nohup: GET …/processes lists it. When absent it ends with the command"`
	PTY            *ptySize          `json:"pty,omitempty" doc:"Give the command a terminal, with background true; GET …/pty?exec= joins it"`
}

// ptySize is the size of a terminal, in characters.
type ptySize struct {
	Cols uint16 `json:"cols" minimum:"1" maximum:"1000"`
	Rows uint16 `json:"rows" minimum:"1" maximum:"1000"`
}

func (b *execBody) command() sandbox.Command {
	c := sandbox.Command{
		Shell: b.Command, Argv: b.Argv, Cwd: b.Cwd, Env: b.Env, EnvSecrets: b.EnvSecrets, RedactEnv: b.RedactEnv, Stdin: b.Stdin, KeepStdin: b.Background, Timeout: route.Seconds(b.TimeoutSeconds),
		Background: b.Background, MaxOutputBytes: b.MaxOutputBytes, ReportFiles: b.ReportFiles, LeaveProcesses: b.LeaveProcesses,
	}
	if b.KeepStdin != nil {
		c.KeepStdin = *b.KeepStdin
	}
	if b.PTY != nil {
		c.Terminal, c.KeepStdin = &sandbox.TerminalSize{Cols: b.PTY.Cols, Rows: b.PTY.Rows}, true
	}
	return c
}

// codeBody is the body of POST /api/threads/{t}/execute_code.
type codeBody struct {
	Code           string            `json:"code" minLength:"1" maxLength:"4194304" doc:"The text of the program. In wasm: a module for WASI preview 1 in base64, or the path of one, such as /mnt/user-data/workspace/tool.wasm"`
	Language       string            `json:"language,omitempty" enum:"typescript,javascript,python,bash,wasm,ts,js,py,sh" doc:"As the server is configured when absent: typescript, unless changed"`
	Description    string            `json:"description,omitempty" maxLength:"500" doc:"What the code does, in a sentence: shown in the list of execs and in the audit log"`
	Timeout        float64           `json:"timeout,omitempty" minimum:"0" maximum:"120" doc:"Seconds; as configured when absent or 0: 30, unless changed"`
	MaxOutputChars int               `json:"max_output_chars,omitempty" minimum:"0" maximum:"1000000" doc:"Of stdout; as configured when absent or 0: 10000, unless changed"`
	Env            map[string]string `json:"env,omitempty" doc:"For this run only. Values of 8 bytes and more are hidden here in the audit log; with redact_env in output, too"`
	EnvSecrets     map[string]string `json:"env_secrets,omitempty" doc:"Variables by the names of secrets, for this run only; the code has their values"`
	RedactEnv      bool              `json:"redact_env,omitempty" doc:"Hide values of 8 bytes and more of env, and of the sandbox's env, in output. Those of env_secrets are always hidden"`
	ContextID      string            `json:"context_id,omitempty" pattern:"^[A-Za-z0-9_-]{1,128}$" doc:"Run it in this context, whose language it is in; a fresh interpreter when absent"`
}

// code is what is asked for; what is absent follows the tenant's settings.
func (b *codeBody) code() sandbox.Code {
	return sandbox.Code{
		Language: b.Language, Description: b.Description, ContextID: b.ContextID, Text: b.Code, Env: b.Env, EnvSecrets: b.EnvSecrets, RedactEnv: b.RedactEnv, Timeout: route.Seconds(b.Timeout), MaxOutputChars: b.MaxOutputChars,
	}
}

// skillBody is the body of POST /api/threads/{t}/skills/{skill}/run.
type skillBody struct {
	Script         string            `json:"script,omitempty" maxLength:"1024" doc:"Path of the script in the skill's folder. Either this or module"`
	Module         string            `json:"module,omitempty" maxLength:"256" doc:"In place of script: a Python module of the skill, run as python -m does. scripts.report is scripts/report.py"`
	Cwd            string            `json:"cwd,omitempty" maxLength:"4096" doc:"/mnt/user-data/workspace when absent"`
	Args           []string          `json:"args,omitempty" maxItems:"1000"`
	Stdin          string            `json:"stdin,omitempty" maxLength:"8388608"`
	TimeoutSeconds float64           `json:"timeout_s,omitempty" minimum:"0" maximum:"3600" doc:"60 when absent or 0"`
	Env            map[string]string `json:"env,omitempty" doc:"For this run only. Values of 8 bytes and more are hidden here in the audit log; with redact_env in output, too"`
	EnvSecrets     map[string]string `json:"env_secrets,omitempty" doc:"Variables by the names of secrets, for this run only; the code has their values"`
	RedactEnv      bool              `json:"redact_env,omitempty" doc:"Hide values of 8 bytes and more of env, and of the sandbox's env, in output. Those of env_secrets are always hidden"`
}

func (b *skillBody) run(skill string) sandbox.Script {
	return sandbox.Script{Skill: skill, Path: b.Script, Module: b.Module, Cwd: b.Cwd, Args: b.Args, Stdin: b.Stdin, Env: b.Env, EnvSecrets: b.EnvSecrets, RedactEnv: b.RedactEnv, Timeout: route.Seconds(b.TimeoutSeconds)}
}

// ExecIn names one exec.
type ExecIn struct {
	route.ThreadIn
	Exec string `path:"exec" pattern:"^[A-Za-z0-9_-]{1,128}$"`
}

func (s execRoutes) add() {
	route.Register(s.api, s.resultOp(route.On(http.MethodPost, "/api/threads/{thread}/exec", "exec", route.TagRun, route.Agents.WithExec(),
		"Run a command. A command that fails is 200 with its exit code. With Accept: text/event-stream the answer is a stream")), s.exec)
	route.Register(s.api, s.resultOp(route.On(http.MethodPost, "/api/threads/{thread}/execute_code", "executeCode", route.TagRun, route.Agents.WithExec(),
		"Run a program text in a fresh interpreter, or in a context; it may call the thread's tools")), s.executeCode)
	route.Register(s.api, s.resultOp(route.On(http.MethodPost, "/api/threads/{thread}/skills/{skill}/run", "runSkill", route.TagRun, route.Agents.WithExec(), "Run a script of a skill")), s.runSkill)
	route.Register(s.api, route.On(http.MethodGet, "/api/threads/{thread}/execs", "listExecs", route.TagRun, route.Agents.At(route.Owner), "Execs of the thread, newest first"), s.listExecs)
	op := s.resultOp(route.On(http.MethodGet, "/api/threads/{thread}/execs/{exec}", "getExec", route.TagRun, route.Agents.At(route.ExecOwner), "An exec as it is now"))
	delete(op.Responses["200"].Content, "text/event-stream")
	route.Register(s.api, op, func(ctx context.Context, in *ExecIn) (*route.Written, error) {
		return s.result(ctx, in.Thread, in.Exec, s.execs.Exec, service.Shown)
	})
	op = s.resultOp(route.On(http.MethodGet, "/api/threads/{thread}/execs/{exec}/events", "execEvents", route.TagRun, route.Agents.At(route.ExecOwner).Following(), "The events of an exec after a number, as they come"))
	delete(op.Responses["200"].Content, "application/json")
	route.Register(s.api, op, s.execEvents)
	route.Register(s.api, route.On(http.MethodPost, "/api/threads/{thread}/execs/{exec}/stdin", "execStdin", route.TagRun, route.Agents.At(route.ExecOwner), "Write to a running exec, or close its stdin"), s.execStdin)
	route.Register(s.api, route.On(http.MethodPost, "/api/threads/{thread}/execs/{exec}/signal", "execSignal", route.TagRun, route.Agents.At(route.ExecOwner), "Send a signal to every process of an exec"), s.execSignal)
	route.Register(s.api, route.On(http.MethodDelete, "/api/threads/{thread}/execs/{exec}", "killExec", route.TagRun, route.Agents.At(route.ExecOwner), "End the whole process tree of an exec, and what an ended one left"),
		func(ctx context.Context, in *ExecIn) (*struct{}, error) {
			return nil, s.execs.Kill(ctx, exchange.CallerOf(ctx), in.Thread, in.Exec)
		})
}

// resultOp describes an answer that is a result, or a stream that ends with one.
func (s execRoutes) resultOp(op huma.Operation) huma.Operation {
	result := route.Schema[sandbox.Result](s.api, "ExecResult")
	op.Responses = map[string]*huma.Response{
		"200": {Description: "OK", Content: map[string]*huma.MediaType{
			"application/json": {Schema: result},
			"text/event-stream": {Schema: &huma.Schema{
				Type:        huma.TypeString,
				Description: `Events started, stdout and stderr ({"data", "encoding"?: "base64"}), approval_required and approval_decided (an Approval without arguments), and one last exit with the ExecResult. Each id is the event's number.`,
			}},
		}},
		"default": s.api.ProblemResponse(),
	}
	return op
}

func (s execRoutes) exec(ctx context.Context, in *struct {
	route.ThreadIn
	Body execBody
},
) (*route.Written, error) {
	cmd := in.Body.command()
	id, err := s.runs.RunCommand(ctx, exchange.CallerOf(ctx), in.Thread, cmd)
	if err != nil {
		return nil, problem.NotStarted(err)
	}
	return s.outcome(ctx, in.Thread, id, cmd.Background, service.Shown)
}

func (s execRoutes) executeCode(ctx context.Context, in *struct {
	route.ThreadIn
	Body codeBody
},
) (*route.Written, error) {
	id, err := s.runs.RunCode(ctx, exchange.CallerOf(ctx), in.Thread, in.Body.code())
	if err != nil {
		return nil, problem.NotStarted(err)
	}
	return s.outcome(ctx, in.Thread, id, false, service.ShownCode)
}

func (s execRoutes) runSkill(ctx context.Context, in *struct {
	route.ThreadIn
	Skill string `path:"skill" maxLength:"128"`
	Body  skillBody
},
) (*route.Written, error) {
	id, err := s.runs.RunScript(ctx, exchange.CallerOf(ctx), in.Thread, in.Body.run(in.Skill))
	if err != nil {
		return nil, problem.NotStarted(err)
	}
	return s.outcome(ctx, in.Thread, id, false, service.Shown)
}

// outcome answers with the result of an exec that was started, or with its stream.
func (s execRoutes) outcome(ctx context.Context, thread, id string, background bool, shape func(*sandbox.Result) any) (*route.Written, error) {
	x := exchange.Of(ctx)
	x.Begun = "exec " + id
	if !background && eventstream.Wanted(x.Request) {
		return &route.Written{Body: func(c huma.Context) {
			s.stream(ctx, humagin.Unwrap(c).Writer, thread, id, 0, shape)
		}}, nil
	}
	get := getResult(s.execs.Wait)
	if background {
		get = s.execs.Exec
	}
	return s.result(ctx, thread, id, get, shape)
}

// getResult is Wait or Exec.
type getResult func(ctx context.Context, c sandbox.Caller, thread, exec string) (sandbox.Result, error)

// result answers with what get says of an exec.
func (s execRoutes) result(ctx context.Context, thread, id string, get getResult, shape func(*sandbox.Result) any) (*route.Written, error) {
	res, err := get(ctx, exchange.CallerOf(ctx), thread, id)
	if err != nil {
		return nil, err
	}
	return &route.Written{Body: func(c huma.Context) {
		route.WriteJSON(humagin.Unwrap(c).Writer, http.StatusOK, shape(&res))
	}}, nil
}

func (s execRoutes) listExecs(ctx context.Context, in *route.ThreadListIn) (*route.Body[route.Page[sandbox.ExecInfo]], error) {
	items, err := s.execs.Execs(ctx, exchange.CallerOf(ctx), in.Thread)
	if err != nil {
		return nil, err
	}
	return route.PageIn(in.ListIn, items, execKey)
}

func (s execRoutes) execEvents(ctx context.Context, in *struct {
	ExecIn
	After       string `query:"after" pattern:"^[0-9]{1,19}$" doc:"Number of the last event that the client has"`
	LastEventID string `header:"Last-Event-ID" pattern:"^[0-9]{1,19}$" doc:"The same, as browsers send it"`
},
) (*route.Written, error) {
	var after uint64
	for _, v := range []string{in.After, in.LastEventID} {
		if v == "" {
			continue
		}
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			return nil, sandbox.InvalidField("after", "has to be the number of an event")
		}
		after = n
		break
	}
	return &route.Written{Body: func(c huma.Context) {
		s.stream(ctx, humagin.Unwrap(c).Writer, in.Thread, in.Exec, after, service.Shown)
	}}, nil
}

func (s execRoutes) execStdin(ctx context.Context, in *struct {
	ExecIn
	Body struct {
		Data     string `json:"data,omitempty"`
		Encoding string `json:"encoding,omitempty" enum:"utf-8,base64"`
		Close    bool   `json:"close,omitempty"`
	}
},
) (*struct{}, error) {
	data, err := route.Decode(in.Body.Data, in.Body.Encoding)
	if err != nil {
		return nil, err
	}
	if len(data) > sandbox.MaxStdinBytes {
		return nil, sandbox.InvalidField("data", "at most %d bytes", sandbox.MaxStdinBytes)
	}
	return nil, s.execs.SendStdin(ctx, exchange.CallerOf(ctx), in.Thread, in.Exec, data, in.Body.Close)
}

func (s execRoutes) execSignal(ctx context.Context, in *struct {
	ExecIn
	Body struct {
		Signal string `json:"signal" pattern:"^[A-Za-z0-9+-]{1,16}$" doc:"A name: TERM, INT, HUP …"`
	}
},
) (*struct{}, error) {
	return nil, s.execs.Signal(ctx, exchange.CallerOf(ctx), in.Thread, in.Exec, in.Body.Signal)
}

func execKey(e sandbox.ExecInfo) string { return e.ExecID }
