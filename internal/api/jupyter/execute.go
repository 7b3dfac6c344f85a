package jupyter

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/api/codeoutput"
	"github.com/skerry-sandbox/skerry/internal/api/inprocess"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// The interpreter of Python says with this variable which result is the value of the code, as one more MIME type. The code does
	// not see it.
	resultsEnv = "E2B_RESULTS"
	mainResult = "application/vnd.e2b.main+json"
	ownTypes   = "application/vnd.e2b."
	// tracebackHead begins the output that becomes the message "error".
	tracebackHead = "Traceback (most recent call last)"
)

// executeBody is the content of execute_request. What else Jupyter knows of it has no meaning here.
type executeBody struct {
	Code   string `json:"code"`
	Silent bool   `json:"silent"`
}

// execute runs code and sends what comes of it. It returns the content of the reply; an error says that the client is gone.
func (k *connection) execute(ctx context.Context, m received) (map[string]any, error) {
	var b executeBody
	if err := json.Unmarshal(m.Content, &b); err != nil {
		return failure("ValueError", "content.code has to be a text", nil), nil //nolint:nilerr // it is told
	}
	count := 0
	if cc, err := k.context(k.kernel); err == nil {
		count = cc.Runs + 1
		if cc.State == sandbox.ContextLost { // as the kernel that Jupyter starts again when one died
			count = 1
			if err := k.restart(k.kernel, k.contextID); err != nil {
				return k.failed(ctx, m, err)
			}
		}
	}
	if !b.Silent {
		if err := k.send(ctx, m.answers(iopub, "execute_input", map[string]any{"code": b.Code, "execution_count": count})); err != nil {
			return nil, err
		}
	}
	if strings.TrimSpace(b.Code) == "" {
		return done(count), nil
	}
	r := &running{connection: k, ctx: ctx, of: m, count: count}
	body := map[string]any{"code": b.Code, "context_id": k.contextID, "timeout": sandbox.MaxCodeTimeout.Seconds()}
	if k.language == "python" {
		body["env"] = map[string]string{resultsEnv: "data"}
	}
	err := k.Events(inprocess.Request{Method: http.MethodPost, Path: threadPath(k.kernel, "/execute_code"), Body: body, Secret: k.secret, Kept: m.held.Answer(ctx)}, r.event)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case r.gone != nil:
		return nil, r.gone
	case err != nil:
		return k.failed(ctx, m, err)
	case r.result == nil:
		return k.failed(ctx, m, sandbox.Errorf(sandbox.SandboxLost, "the run has no end"))
	}
	return r.end()
}

func done(count int) map[string]any {
	return map[string]any{"status": "ok", "execution_count": count, "user_expressions": map[string]any{}, "payload": []any{}}
}

// failed tells of an error that is not the code's own.
func (k *connection) failed(ctx context.Context, m received, err error) (map[string]any, error) {
	name, value := reason(err)
	content := failure(name, value, []string{name + ": " + value})
	return content, k.send(ctx, m.answers(iopub, "error", content))
}

// running is one run whose messages are under way.
type running struct {
	*connection
	ctx    context.Context //nolint:containedctx // of the connection, for the events of one run
	of     received
	count  int
	held   strings.Builder // of stderr, from what may be a traceback on: the end of the run says whether it was the error's
	traced bool            // it is one
	stderr codeoutput.Tail
	result *sandbox.Result
	gone   error
}

// event takes one event of the run.
func (r *running) event(e inprocess.Event) error {
	switch sandbox.EventType(e.Name) {
	case sandbox.EventStdout, sandbox.EventStderr:
		var o output
		if err := json.Unmarshal(e.Data, &o); err != nil {
			return fmt.Errorf("an event of the run: %w", err)
		}
		r.gone = r.output(e.Name, codeoutput.Readable(o.Data, o.Encoding))
		return r.gone
	case sandbox.EventExit:
		r.result = &sandbox.Result{}
		return json.Unmarshal(e.Data, r.result)
	}
	return nil
}

func (r *running) output(name, text string) error {
	if name == "stdout" {
		return r.stream(name, text)
	}
	r.stderr.Add([]byte(text))
	if r.language != "python" {
		return r.stream(name, text)
	}
	r.held.WriteString(text)
	if r.traced {
		if r.held.Len() > codeoutput.MaxTail { // no traceback of a person's code
			return r.release()
		}
		return nil
	}
	all := r.held.String()
	r.held.Reset()
	cut := strings.Index(all, tracebackHead)
	if r.traced = cut >= 0; !r.traced {
		for cut = max(len(all)-len(tracebackHead), 0); !strings.HasPrefix(tracebackHead, all[cut:]); cut++ { // at last "", which every text has
		}
	}
	if cut < len(all) {
		cut = strings.LastIndexByte(all[:cut], '\n') + 1
	}
	r.held.WriteString(all[cut:])
	return r.stream(name, all[:cut])
}

// release sends what was held back.
func (r *running) release() error {
	text := r.held.String()
	r.held.Reset()
	r.traced = false
	return r.stream("stderr", text)
}

func (r *running) stream(name, text string) error {
	if text == "" {
		return nil
	}
	return r.send(r.ctx, r.of.answers(iopub, "stream", map[string]string{"name": name, "text": text}))
}

// end sends what the run displayed and the error that it ended with, and returns the content of the reply.
func (r *running) end() (map[string]any, error) {
	name, value, failed := r.failure()
	traceback := []string{}
	if failed && r.traced {
		traceback = strings.Split(strings.TrimRight(r.held.String(), "\n"), "\n")
	} else if err := r.release(); err != nil {
		return nil, err
	}
	if r.result.Results != nil {
		for i, rich := range *r.result.Results {
			if err := r.display(rich, i == len(*r.result.Results)-1); err != nil {
				return nil, err
			}
		}
	}
	if !failed {
		return done(r.count), nil
	}
	content := failure(name, value, traceback)
	if err := r.send(r.ctx, r.of.answers(iopub, "error", content)); err != nil {
		return nil, err
	}
	content["execution_count"] = r.count
	return content, nil
}

// display sends one thing that the run displayed. Python says which is the value of the code; of the others' it is the last.
func (r *running) display(rich sandbox.RichResult, last bool) error {
	value := rich[mainResult] != nil || r.language != "python" && last
	data := map[string]json.RawMessage{}
	for kind, text := range rich {
		if !strings.HasPrefix(kind, ownTypes) {
			data[kind] = text
		}
	}
	content := map[string]any{"data": data, "metadata": map[string]any{}, "transient": map[string]any{}}
	if !value {
		return r.send(r.ctx, r.of.answers(iopub, "display_data", content))
	}
	content["execution_count"] = r.count
	return r.send(r.ctx, r.of.answers(iopub, "execute_result", content))
}

// failure is the error of the run, if there was one.
func (r *running) failure() (name, value string, failed bool) {
	res := r.result
	switch res.Status {
	case sandbox.StatusExited:
		if res.ExitCode == nil || *res.ExitCode == 0 {
			return "", "", false
		}
		if name, value, ok := codeoutput.Thrown(r.language, r.stderr.String()); ok {
			return name, value, true
		}
		return "ExitError", fmt.Sprintf("the code ended with exit code %d", *res.ExitCode), true
	case sandbox.StatusTimeout:
		return "TimeoutError", fmt.Sprintf("the code took longer than %s", sandbox.MaxCodeTimeout), true
	case sandbox.StatusOOM:
		return "MemoryError", "the code ran out of memory", true
	case sandbox.StatusLost:
		return "DeadKernelError", "the sandbox ended under the code", true
	}
	if detail := strings.TrimSpace(res.Detail); detail != "" {
		return "KeyboardInterrupt", detail, true
	}
	return "KeyboardInterrupt", "the code was ended", true
}
