package librechat

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/inprocess"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// LibreChat runs code that calls its tools in rounds. The answer to the first request names the calls that the code waits for. The
// next request brings their results, and so on, until the code has ended. Between them the code waits in its sandbox, with its
// stdin open. The token of a round says all that the next one needs, so any server of an installation answers it.

const (
	// workflowTime is how long code may take with the time in which it waits for tools, in seconds, and patience how long it waits for
	// the results of one round.
	workflowTime = 1800
	patience     = 300
	maxTools     = 500
	maxResults   = 1000
	// markLength is how long the word is that marks calls in the output.
	markLength = 26
)

//go:embed programmatic.py
var programmatic string

// programBody is the body of POST /exec/programmatic: code with tools, or the results that a round waits for.
type programBody struct {
	execBody
	Tools []struct {
		Name string `json:"name"`
	} `json:"tools"`
	Timeout int64        `json:"timeout"` // milliseconds, of one round
	Token   string       `json:"continuation_token"`
	Results []toolResult `json:"tool_results"`
}

// toolResult is what a tool answered.
type toolResult struct {
	ID      string          `json:"call_id"`
	Result  json.RawMessage `json:"result"`
	IsError bool            `json:"is_error"`
	Error   string          `json:"error_message"`
}

// toolCall is a call that code waits for.
type toolCall struct {
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

// round says where code waits: its exec, the last event that was read, and the mark of its calls.
type round struct {
	thread, exec, mark string
	after              uint64
}

var validRound = regexp.MustCompile(`^([A-Za-z0-9_-]{21})\.([A-Za-z0-9_-]{1,128})\.([0-9]{1,19})\.([A-Z0-9]{26})$`)

func (r round) token() string { return fmt.Sprintf("%s.%s.%d.%s", r.thread, r.exec, r.after, r.mark) }

func parseRound(token string) (round, error) {
	parts := validRound.FindStringSubmatch(token)
	if parts == nil {
		return round{}, sandbox.Errorf(sandbox.Invalid, "continuation_token: is not one of this server")
	}
	after, err := strconv.ParseUint(parts[3], 10, 63)
	if err != nil {
		return round{}, sandbox.Errorf(sandbox.Invalid, "continuation_token: is not one of this server")
	}
	return round{parts[1], parts[2], parts[4], after}, nil
}

// program runs code with tools to its first calls, or from a round to the next.
func (a *adapter) program(c *call) error {
	var b programBody
	if err := c.body(&b); err != nil {
		return err
	}
	if b.Timeout < 0 || b.Timeout > runTime*1000 {
		b.Timeout = runTime * 1000
	}
	var r round
	var err error
	if b.Token != "" {
		r, err = c.resume(&b)
	} else {
		r, err = a.begin(c, &b)
	}
	if err != nil {
		return err
	}
	return c.follow(r, time.Duration(b.Timeout)*time.Millisecond)
}

// begin starts code.
func (a *adapter) begin(c *call, b *programBody) (round, error) {
	if b.Lang == "" {
		b.Lang = "py"
	}
	if languages[b.Lang] != "python" {
		return round{}, sandbox.Errorf(sandbox.NotSupported, "lang: %.40q calls no tools of LibreChat here; py does", b.Lang)
	}
	if len(b.Tools) > maxTools {
		return round{}, sandbox.Errorf(sandbox.Invalid, "tools: at most %d", maxTools)
	}
	if err := b.check(); err != nil {
		return round{}, err
	}
	thread, err := a.ready(c, &b.execBody)
	if err != nil {
		return round{}, err
	}
	type named struct {
		Name   string `json:"name"`
		Python string `json:"python"`
	}
	r := round{thread: thread, mark: rand.Text()[:markLength]}
	first := struct {
		Code     string  `json:"code"`
		Mark     string  `json:"mark"`
		Patience int     `json:"patience"`
		Tools    []named `json:"tools"`
	}{b.Code, r.mark, patience, []named{}}
	for _, t := range b.Tools {
		first.Tools = append(first.Tools, named{t.Name, identifier(t.Name)})
	}
	line, err := json.Marshal(first)
	if err != nil {
		return round{}, sandbox.Wrap(sandbox.Internal, err, "the code cannot be written")
	}
	var started sandbox.Result
	err = c.into(inprocess.Request{Method: http.MethodPost, Path: "/api/threads/" + thread + "/exec", Body: map[string]any{
		"argv": []string{"python3", "-c", programmatic}, "stdin": string(line) + "\n", "keep_stdin": true, "background": true,
		"timeout_s": workflowTime, "max_output_bytes": maxOutput, "report_files": true,
	}}, &started)
	r.exec = started.ExecID
	return r, err
}

var (
	separators = regexp.MustCompile(`[-\s]`)
	others     = regexp.MustCompile(`[^A-Za-z0-9_]`)
	keywords   = regexp.MustCompile(`^(False|None|True|and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield)$`)
)

// identifier is the name of a tool in Python, as LibreChat tells models it is.
func identifier(name string) string {
	name = others.ReplaceAllString(separators.ReplaceAllString(name, "_"), "")
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		name = "_" + name
	}
	if keywords.MatchString(name) {
		name += "_tool"
	}
	return name
}

// resume hands results to code that waits for them.
func (c *call) resume(b *programBody) (round, error) {
	r, err := parseRound(b.Token)
	if err != nil {
		return r, err
	}
	if len(b.Results) > maxResults {
		return r, sandbox.Errorf(sandbox.Invalid, "tool_results: at most %d", maxResults)
	}
	for i := range b.Results {
		if len(b.Results[i].Result) == 0 {
			b.Results[i].Result = json.RawMessage("null")
		}
	}
	line, err := json.Marshal(b.Results) // one line: the results in it are made compact
	if err != nil {
		return r, sandbox.Wrap(sandbox.Invalid, err, "tool_results: cannot be read")
	}
	q := inprocess.Request{Method: http.MethodPost, Path: r.path("/stdin"), Body: map[string]string{"data": string(line) + "\n"}}
	if _, err := c.do(q); err != nil {
		return r, err
	}
	return r, nil
}

func (r round) path(rest string) string {
	return "/api/threads/" + r.thread + "/execs/" + r.exec + rest
}

// errCalls ends the events of a round: the code waits for tools.
var errCalls = errors.New("the code waits for tools")

// follow waits until the code calls tools or ends, and answers with that.
func (c *call) follow(r round, limit time.Duration) error {
	if limit <= 0 {
		limit = runTime * time.Second
	}
	ctx, cancel := context.WithTimeout(c.R.Context(), limit)
	defer cancel()
	timed := c.Caller
	timed.R = c.R.WithContext(ctx)
	seen := calls{mark: []byte("\x1e" + r.mark)}
	q := c.with(inprocess.Request{Method: http.MethodGet, Path: r.path("/events"), Query: map[string]string{"after": strconv.FormatUint(r.after, 10)}})
	err := timed.Events(q, seen.event)
	switch {
	case errors.Is(err, errCalls):
		r.after = max(r.after, seen.after)
		inprocess.Write(c.W, http.StatusOK, map[string]any{"status": "tool_call_required", "session_id": r.thread, "continuation_token": r.token(), "tool_calls": seen.found})
		return nil
	case ctx.Err() != nil && c.R.Context().Err() == nil:
		if _, err := c.do(inprocess.Request{Method: http.MethodDelete, Path: r.path("")}); err != nil {
			return err
		}
		inprocess.Write(c.W, http.StatusOK, map[string]any{"status": "error", "session_id": r.thread, "error": fmt.Sprintf("the code took longer than %s without a call of a tool", limit)})
		return nil
	case err != nil:
		return err
	case seen.result == nil:
		return sandbox.Errorf(sandbox.SandboxLost, "the code has no end")
	}
	out := answerOf(r.thread, *seen.result)
	out.Stdout = without(out.Stdout, "\x1e"+r.mark)
	inprocess.Write(c.W, http.StatusOK, map[string]any{"status": "completed", "session_id": r.thread, "stdout": out.Stdout, "stderr": out.Stderr, "files": out.Files})
	return nil
}

// without takes out each piece of a text from a mark to the end of its line.
func without(text, mark string) string {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(text, mark)
		out.WriteString(before)
		if !found {
			return out.String()
		}
		_, text, _ = strings.Cut(after, "\n")
	}
}

// calls finds the next calls in the output of an exec.
type calls struct {
	mark   []byte
	after  uint64 // number of the last event that was read
	line   []byte // of the output since the mark, or what may be the mark's beginning
	found  []toolCall
	result *sandbox.Result
}

// maxCalls bounds the text of the calls of one round, in bytes.
const maxCalls = 4 << 20

func (s *calls) event(e inprocess.Event) error {
	s.after = max(s.after, e.ID)
	switch sandbox.EventType(e.Name) {
	case sandbox.EventExit:
		s.result = &sandbox.Result{}
		return json.Unmarshal(e.Data, s.result)
	case sandbox.EventStdout:
	default:
		return nil
	}
	var o struct{ Data, Encoding string }
	if err := json.Unmarshal(e.Data, &o); err != nil {
		return fmt.Errorf("an event of the code: %w", err)
	}
	piece := []byte(o.Data)
	if o.Encoding == "base64" {
		var err error
		if piece, err = base64.StdEncoding.DecodeString(o.Data); err != nil {
			return fmt.Errorf("an event of the code: %w", err)
		}
	}
	return s.output(piece)
}

func (s *calls) output(piece []byte) error {
	s.line = append(s.line, piece...)
	i := bytes.Index(s.line, s.mark)
	if i < 0 { // keep what may become the mark
		s.line = s.line[max(len(s.line)-len(s.mark), 0):]
		return nil
	}
	text, _, whole := bytes.Cut(s.line[i+len(s.mark):], []byte("\n"))
	if !whole {
		if s.line = s.line[i:]; len(s.line) > maxCalls {
			return sandbox.Errorf(sandbox.QuotaExceeded, "the calls of tools have more than %d bytes", maxCalls)
		}
		return nil
	}
	if len(text) > maxCalls {
		return sandbox.Errorf(sandbox.QuotaExceeded, "the calls of tools have more than %d bytes", maxCalls)
	}
	if err := json.Unmarshal(text, &s.found); err != nil {
		return sandbox.Errorf(sandbox.Invalid, "the calls of tools that the code wrote are not right: %.200s", err.Error())
	}
	return errCalls
}
