package deerflow

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/api/inprocess"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// maxCommandTime is how long a command may run, in seconds. DeerFlow asks for 600 and waits 600 for the answer: it would never see what a command printed
// until then.
const maxCommandTime = 590

// version is the all-in-one sandbox whose answers these are.
const version = "1.11.0"

// about says that the sandbox is there. It starts none.
func (*adapter) about(x *exchange) error {
	var got threadView
	if err := x.into(inprocess.Request{Method: http.MethodGet, Path: "/api/threads/" + x.thread}, &got); err != nil {
		return err
	}
	if phase(got.Sandbox) != "Running" {
		return sandbox.Errorf(sandbox.Unavailable, "the sandbox does not run")
	}
	inprocess.Write(x.w, http.StatusOK, map[string]any{
		"success": true, "message": "done", "data": nil, "home_dir": sandbox.HomeDir, "workspace": sandbox.WorkspaceDir, "version": version,
		"detail": map[string]any{
			"system": map[string]any{
				"os": "Linux", "os_version": "", "arch": "", "user": "agent", "home_dir": sandbox.HomeDir, "workspace": sandbox.WorkspaceDir, "timezone": "UTC",
				"occupied_ports": []string{},
			},
			"runtime": map[string]any{"python": []any{}, "nodejs": []any{}}, "utils": []any{},
		},
	})
	return nil
}

// shellRequest is the body of POST /v1/shell/exec.
type shellRequest struct {
	ID               string   `json:"id"`
	Command          string   `json:"command"`
	ExecDir          string   `json:"exec_dir"`
	AsyncMode        bool     `json:"async_mode"`
	Timeout          *float64 `json:"timeout"`
	Strict           *bool    `json:"strict"` // a folder that is not there is always an error
	NoChangeTimeout  float64  `json:"no_change_timeout"`
	HardTimeout      float64  `json:"hard_timeout"`
	PreserveSymlinks bool     `json:"preserve_symlinks"`
	Truncate         *bool    `json:"truncate"` // the limit of output is the API's
}

// session is the name of a shell session. There are none behind it: each command has a shell of its own.
var session = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,128}$`)

func checkSession(id string) error {
	if id != "" && !session.MatchString(id) {
		return sandbox.Errorf(sandbox.Invalid, "id: use 1 to 128 of the characters A-Z a-z 0-9 _ . : -")
	}
	return nil
}

// run is a command for the API.
func run(command, dir string, env map[string]string, seconds float64) map[string]any {
	if seconds <= 0 || seconds > maxCommandTime {
		seconds = maxCommandTime
	}
	body := map[string]any{"command": command, "timeout_s": seconds}
	if dir != "" {
		body["cwd"] = dir
	}
	if len(env) > 0 {
		body["env"] = env
	}
	return body
}

func (*adapter) shellExec(x *exchange) error {
	var c shellRequest
	if err := x.body(&c); err != nil {
		return err
	}
	if err := notSupported(map[string]bool{"async_mode": c.AsyncMode, "timeout": c.Timeout != nil, "preserve_symlinks": c.PreserveSymlinks}); err != nil {
		return err
	}
	if err := checkSession(c.ID); err != nil {
		return err
	}
	if c.Command == "" {
		return sandbox.Errorf(sandbox.Invalid, "command: is empty")
	}
	limit := c.HardTimeout
	if limit <= 0 || c.NoChangeTimeout > 0 && c.NoChangeTimeout < limit {
		limit = c.NoChangeTimeout
	}
	var r sandbox.Result
	// A terminal shows both streams in one, in the order in which they were written.
	if err := x.into(inprocess.Request{Method: http.MethodPost, Path: "/api/threads/" + x.thread + "/exec", Body: run("exec 2>&1\n"+c.Command, c.ExecDir, nil, limit)}, &r); err != nil {
		return err
	}
	id := c.ID
	if id == "" {
		id = r.ExecID
	}
	status := map[sandbox.Status]string{sandbox.StatusExited: "completed", sandbox.StatusTimeout: "hard_timeout"}[r.Status]
	if status == "" {
		status = "terminated"
	}
	return x.ok(map[string]any{
		"session_id": id, "command": c.Command, "status": status, "output": plain(r.Stdout, r.Encoding) + note(r), "console": nil, "exit_code": r.ExitCode,
	})
}

// note says in words what DeerFlow would not see: it looks at the output alone.
func note(r sandbox.Result) string {
	text := ""
	switch r.Status {
	case sandbox.StatusExited:
	case sandbox.StatusTimeout:
		text = "\n[The command was ended: it took too long.]"
	case sandbox.StatusOOM:
		text = "\n[The command was ended: it took more memory than there is.]"
	default:
		text = fmt.Sprintf("\n[The command was ended: %s. %s]", r.Status, r.Detail)
	}
	if r.Truncated && r.StdoutPath != nil {
		text += "\n[All of the output is in " + *r.StdoutPath + ".]"
	}
	if r.Truncated && r.StderrPath != nil {
		text += "\n[All of stderr is in " + *r.StderrPath + ".]"
	}
	return text
}

// plain returns a stream as text.
func plain(text, encoding string) string {
	if encoding == "base64" {
		if raw, err := base64.StdEncoding.DecodeString(text); err == nil {
			text = string(raw)
		}
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

func (*adapter) shellSession(x *exchange) error {
	var c struct {
		ID      string `json:"id"`
		ExecDir string `json:"exec_dir"`
	}
	if err := x.body(&c); err != nil {
		return err
	}
	if err := notSupported(map[string]bool{"exec_dir": c.ExecDir != ""}); err != nil {
		return err
	}
	if c.ID == "" {
		return sandbox.Errorf(sandbox.Invalid, "id: is empty")
	}
	if err := checkSession(c.ID); err != nil {
		return err
	}
	return x.ok(map[string]any{"session_id": c.ID, "working_dir": sandbox.WorkspaceDir})
}

func (*adapter) endShellSession(x *exchange) error {
	if err := checkSession(x.r.PathValue("session")); err != nil {
		return err
	}
	return x.ok(nil)
}

// bashRequest is the body of POST /v1/bash/exec.
type bashRequest struct {
	SessionID       string            `json:"session_id"`
	Command         string            `json:"command"`
	ExecDir         string            `json:"exec_dir"`
	Env             map[string]string `json:"env"`
	AsyncMode       bool              `json:"async_mode"`
	Timeout         *float64          `json:"timeout"`
	HardTimeout     float64           `json:"hard_timeout"`
	MaxOutputLength *int              `json:"max_output_length"`
}

func (*adapter) bashExec(x *exchange) error {
	var c bashRequest
	if err := x.body(&c); err != nil {
		return err
	}
	unserved := map[string]bool{"session_id": c.SessionID != "", "async_mode": c.AsyncMode, "timeout": c.Timeout != nil, "max_output_length": c.MaxOutputLength != nil}
	if err := notSupported(unserved); err != nil {
		return err
	}
	if c.Command == "" {
		return sandbox.Errorf(sandbox.Invalid, "command: is empty")
	}
	var r sandbox.Result
	if err := x.into(inprocess.Request{Method: http.MethodPost, Path: "/api/threads/" + x.thread + "/exec", Body: run(c.Command, c.ExecDir, c.Env, c.HardTimeout)}, &r); err != nil {
		return err
	}
	status := map[sandbox.Status]string{sandbox.StatusExited: "completed", sandbox.StatusTimeout: "timed_out"}[r.Status]
	if status == "" {
		status = "killed"
	}
	stdout, stderr := plain(r.Stdout, r.Encoding), plain(r.Stderr, r.Encoding)+note(r)
	return x.ok(map[string]any{
		"session_id": r.ExecID, "command_id": r.ExecID, "command": c.Command, "status": status, "stdout": stdout, "stderr": stderr, "exit_code": r.ExitCode,
		"offset": len(stdout), "stderr_offset": len(stderr),
	})
}
