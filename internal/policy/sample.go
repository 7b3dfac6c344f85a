package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Sample is a call that rules are tried on. Empty fields get defaults: the tenant is "default", the user
// "somebody", the role "agent", the kind a tool call, the time now.
type Sample struct {
	Kind         Kind            `json:"kind,omitempty" enum:"tool_call,mcp_request,exec,execute_code,skill_run" doc:"tool_call when absent"`
	Server       string          `json:"server,omitempty" doc:"Name of an MCP server"`
	Tool         string          `json:"tool,omitempty" doc:"Name of the tool as its server has it"`
	Annotations  json.RawMessage `json:"annotations,omitempty" doc:"What the tool says of itself: an object with readOnlyHint and the like"`
	Args         json.RawMessage `json:"args,omitempty" doc:"Arguments: an object"`
	Tenant       string          `json:"tenant,omitempty" doc:"default when absent"`
	User         string          `json:"user,omitempty" doc:"somebody when absent"`
	Role         string          `json:"role,omitempty" enum:"agent,developer,admin" doc:"agent when absent"`
	Capabilities []string        `json:"capabilities,omitempty" doc:"Those that the caller has"`
	Thread       string          `json:"thread,omitempty"`
	Exec         string          `json:"exec,omitempty" doc:"Id of an exec whose code calls"`
	Skill        string          `json:"skill,omitempty" doc:"The skill whose script runs, or calls the tool"`
	AllowedTools []string        `json:"allowed_tools,omitempty" doc:"What the skill names in allowed-tools"`
	Untrusted    bool            `json:"untrusted,omitempty" doc:"The skill comes from a source that is not trusted"`
	Time         *time.Time      `json:"time,omitempty" doc:"Now when absent"`
}

// ReadSample reads one. The error says what is wrong with it.
func ReadSample(text []byte) (Sample, error) {
	var s Sample
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		if errors.Is(err, io.EOF) {
			return s, errors.New("is empty; want an object with server, tool and args")
		}
		return s, fmt.Errorf("%s; there are kind, server, tool, annotations, args, tenant, user, role, capabilities, thread, exec, skill, allowed_tools, untrusted, time", strings.TrimPrefix(err.Error(), "json: "))
	}
	return s, nil
}

// Request is the request that a sample stands for.
func (s Sample) Request() Request {
	or := func(v, other string) string {
		if v == "" {
			return other
		}
		return v
	}
	t := sandbox.Thread{Owner: sandbox.Owner{Tenant: or(s.Tenant, "default"), User: or(s.User, "somebody")}, ID: or(s.Thread, "main")}
	r := Request{
		Kind: Kind(or(string(s.Kind), string(KindToolCall))), Thread: t, Caller: sandbox.Caller{Owner: t.Owner, Role: sandbox.Role(or(s.Role, string(sandbox.RoleAgent)))}, Exec: s.Exec,
		Server: s.Server, Tool: s.Tool, Printed: s.Server + "." + s.Tool, Annotations: ReadAnnotations(s.Annotations), Arguments: s.Args,
		Skill: s.Skill, AllowedTools: s.AllowedTools, Untrusted: s.Untrusted, Capabilities: s.Capabilities, Time: time.Now(),
	}
	if len(r.Arguments) == 0 {
		r.Arguments = json.RawMessage("{}")
	}
	if s.Time != nil {
		r.Time = *s.Time
	}
	return r
}

// yamlJSON writes a YAML value as JSON.
func yamlJSON(n *yaml.Node) ([]byte, error) {
	var v any
	if err := n.Decode(&v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}
