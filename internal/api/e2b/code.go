package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/api/codeoutput"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// interpreter serves the calls of E2B's code interpreter.
type interpreter struct{ *Adapter }

// maxOutputChars is the most that a run keeps of its output; all of it goes by as events.
const maxOutputChars = 1_000_000

type executeBody struct {
	Code      string            `json:"code"`
	ContextID string            `json:"context_id"`
	Language  string            `json:"language"`
	Env       map[string]string `json:"env_vars"`
}

// defaults are the names of the contexts of code that names none, as E2B's interpreter has them from the beginning. Ours begin
// with the first code.
var defaults = map[string]string{"default": "python", "default-javascript": "javascript"}

// resultsEnv asks the interpreter of Python for results with the data of frames and charts, and for which of them is the value of the code. The code does not see
// it.
const resultsEnv = "E2B_RESULTS"

// contextLanguages are the languages that keep their variables; bash runs afresh each time.
var contextLanguages = map[string]bool{"python": true, "javascript": true, "typescript": true}

// language is ours for a name of E2B's.
func language(name string) (string, error) {
	switch l := strings.ToLower(strings.TrimSpace(name)); l {
	case "", "python", "python3":
		return "python", nil
	case "js", "javascript":
		return "javascript", nil
	case "ts", "typescript":
		return "typescript", nil
	case "bash":
		return "bash", nil
	}
	return "", notSupported(fmt.Sprintf("language %.64q", name))
}

// execute runs code in a context and says what comes of it, line by line.
func (a interpreter) execute(w http.ResponseWriter, r *http.Request, q request) error {
	ctx := r.Context()
	var b executeBody
	if err := readJSON(r, q, &b); err != nil {
		return err
	}
	if len(b.Code) > sandbox.MaxCodeBytes {
		return sandbox.Errorf(sandbox.Invalid, "code: at most %d bytes", sandbox.MaxCodeBytes)
	}
	if b.ContextID != "" && b.Language != "" {
		return sandbox.Errorf(sandbox.Invalid, "only one of context_id and language can be given")
	}
	lang, err := language(b.Language)
	if err != nil {
		return err
	}
	if _, err := a.known.find(ctx, q, false); err != nil {
		return err
	}
	code := sandbox.Code{Text: b.Code, Env: b.Env, Timeout: sandbox.MaxCodeTimeout, MaxOutputChars: maxOutputChars, ContextID: b.ContextID}
	if code.Text == "" {
		code.Text = "\n" // E2B runs nothing without a word
	}
	switch own := defaults[b.ContextID]; {
	case own != "":
		lang = own
		if code.ContextID, err = a.defaultContext(ctx, q, own); err != nil {
			return err
		}
	case b.ContextID != "":
		cc, err := a.o.Contexts.Context(ctx, q.caller, q.thread, b.ContextID)
		if err != nil {
			return err
		}
		lang = cc.Language
	case !contextLanguages[lang]:
		code.Language = lang
		code.Env = withEnv(b.Env, "PWD", homeDir) // bash believes it, where it leads to the folder
	default:
		if code.ContextID, err = a.defaultContext(ctx, q, lang); err != nil {
			return err
		}
	}
	if code.ContextID != "" { // one run at a time; the others wait as E2B's do
		unlock, err := a.locks.Lock(ctx, "context "+threadOf(q).String()+" "+code.ContextID)
		if err != nil {
			return err
		}
		defer unlock()
	}
	if lang == "python" && code.ContextID != "" {
		code.Env = withEnv(b.Env, resultsEnv, "data")
	}
	id, err := a.o.Runs.RunCode(ctx, q.caller, q.thread, code)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	return a.tell(ctx, w, q, id, lang, code.ContextID)
}

func withEnv(env map[string]string, name, value string) map[string]string {
	out := map[string]string{name: value}
	maps.Copy(out, env)
	return out
}

// defaultContext is the context of code that names none. Its id is among the labels, so that it is found again.
func (a interpreter) defaultContext(ctx context.Context, q request, lang string) (string, error) {
	unlock, err := a.locks.Lock(ctx, "default "+lang+" "+threadOf(q).String())
	if err != nil {
		return "", err
	}
	defer unlock()
	view, err := a.known.find(ctx, q, false)
	if err != nil {
		return "", err
	}
	if id := view.Labels[labelContext+lang]; id != "" {
		cc, err := a.o.Contexts.Context(ctx, q.caller, q.thread, id)
		switch {
		case err == nil && cc.State == sandbox.ContextLost:
			_, err = a.o.Contexts.RestartContext(ctx, q.caller, q.thread, id)
			return id, err
		case err == nil || sandbox.KindOf(err) != sandbox.NotFound:
			return id, err
		}
	}
	cc, err := a.o.Contexts.CreateContext(ctx, q.caller, q.thread, sandbox.ContextRequest{Language: lang})
	if err != nil {
		return "", err
	}
	_, err = a.relabel(ctx, q, map[string]string{labelContext + lang: cc.ContextID})
	return cc.ContextID, err
}

const (
	// abandonTime bounds the end of a run whose client is gone, of which the interrupt has most: code may take it and go on.
	abandonTime   = 20 * time.Second
	interruptTime = 5 * time.Second
)

// abandon ends a run whose client is gone, and returns when it has ended: the next run of its context waits for that. An
// interrupt keeps the variables of the context. Code that goes on is killed, and its context is empty then.
func (a interpreter) abandon(q request, id, contextID string) {
	ctx, cancel := context.WithTimeout(context.Background(), abandonTime)
	defer cancel()
	if contextID != "" {
		short, stop := context.WithTimeout(ctx, interruptTime)
		defer stop()
		if _, err := a.o.Contexts.InterruptContext(short, q.caller, q.thread, contextID); err == nil {
			if _, err = a.o.Execs.Wait(short, q.caller, q.thread, id); err == nil {
				return
			}
		}
	}
	err := a.o.Execs.Kill(ctx, q.caller, q.thread, id)
	if err == nil {
		_, err = a.o.Execs.Wait(ctx, q.caller, q.thread, id)
	}
	if err == nil && contextID != "" {
		_, err = a.o.Contexts.RestartContext(ctx, q.caller, q.thread, contextID)
	}
	if kind := sandbox.KindOf(err); err != nil && kind != sandbox.NotFound && kind != sandbox.SandboxLost {
		a.o.Log.Warn("code whose client of E2B is gone was not ended", "thread", threadOf(q).String(), "exec", id, "error", err)
	}
}

// lines writes what comes of a run, each thing on a line.
type lines struct {
	mu   sync.Mutex
	w    http.ResponseWriter
	gone bool // the client
}

// left reports whether the client is gone.
func (l *lines) left() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gone
}

func (l *lines) say(v map[string]any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := json.NewEncoder(l.w).Encode(v)
	if err == nil {
		err = http.NewResponseController(l.w).Flush()
	}
	l.gone = l.gone || err != nil
	return err
}

// tell follows a run to its end. From here on the answer is under way, so that an error is one of the lines.
func (a interpreter) tell(ctx context.Context, w http.ResponseWriter, q request, id, lang, contextID string) error {
	out := &lines{w: w}
	stop := every(keepAlive, func() { _ = out.say(map[string]any{"type": "keepalive"}) }) // the SDKs pass over what they do not know
	defer stop()
	var stdout, stderr codeoutput.Text
	var complaint codeoutput.Tail
	var res *sandbox.Result
	err := a.o.Execs.Events(ctx, q.caller, q.thread, id, 0, func(ev sandbox.Event) error {
		switch ev.Type {
		case sandbox.EventStdout:
			return out.text("stdout", stdout.Add(ev.Data), ev.Time)
		case sandbox.EventStderr:
			complaint.Add(ev.Data)
			return out.text("stderr", stderr.Add(ev.Data), ev.Time)
		case sandbox.EventExit:
			res = ev.Result
		}
		return nil
	})
	if err == nil && res == nil {
		err = errors.New("an exec without an end")
	}
	if res == nil && (ctx.Err() != nil || out.left()) {
		a.abandon(q, id, contextID)
		return nil
	}
	if (err != nil || cutOff(res)) && a.ceased(ctx, q) {
		stop()
		panic(http.ErrAbortHandler) // the SDKs ask then whether the sandbox is there, and say that it is not
	}
	if err != nil {
		_, detail := toE2BError(err)
		a.note(ctx, codes[sandbox.KindOf(err)], err)
		return out.end(map[string]any{"type": "error", "name": "SandboxError", "value": detail, "traceback": ""})
	}
	now := time.Now()
	err = errors.Join(out.text("stdout", stdout.Rest(), now), out.text("stderr", stderr.Rest(), now))
	if res.Results != nil {
		told := slices.ContainsFunc(*res.Results, func(rich sandbox.RichResult) bool { return rich[mainResult] != nil })
		for i, rich := range *res.Results {
			err = errors.Join(err, out.say(resultLine(rich, !told && i == len(*res.Results)-1)))
		}
	}
	if failure := failed(res, lang, complaint.String()); failure != nil {
		err = errors.Join(err, out.say(failure))
	}
	if contextID != "" {
		if cc, e := a.o.Contexts.Context(ctx, q.caller, q.thread, contextID); e == nil {
			err = errors.Join(err, out.say(map[string]any{"type": "number_of_executions", "execution_count": cc.Runs}))
		}
	}
	if err != nil {
		return nil //nolint:nilerr // the client is gone
	}
	return out.end(nil)
}

func (l *lines) text(kind, text string, at time.Time) error {
	if text == "" {
		return nil
	}
	return l.say(map[string]any{"type": kind, "text": text, "timestamp": at.UTC().Format(time.RFC3339Nano)})
}

// end says a last thing, and that it was the last. A client that is gone is no error.
func (l *lines) end(last map[string]any) error {
	if last != nil {
		_ = l.say(last)
	}
	_ = l.say(map[string]any{"type": "end_of_execution"})
	return nil
}

// resultNames are E2B's names of MIME types; others go into extra.
var resultNames = map[string]string{
	"text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg", "image/png": "png", "image/jpeg": "jpeg",
	"application/pdf": "pdf", "text/latex": "latex", "application/json": "json", "application/javascript": "javascript",
	"application/vnd.e2b.data+json": "data", "application/vnd.e2b.chart+json": "chart", mainResult: "is_main_result",
}

// mainResult says that a result is the value of the code. Only Python tells.
const mainResult = "application/vnd.e2b.main+json"

// resultLine is one thing that a run displayed. Where the interpreter does not tell what is the value of the code, the last one is
// taken for it, unless it is a picture.
func resultLine(rich sandbox.RichResult, last bool) map[string]any {
	line := map[string]any{"type": "result"}
	extra := map[string]any{}
	for kind, data := range rich {
		if name := resultNames[kind]; name != "" {
			line[name] = data
		} else {
			extra[kind] = data
		}
	}
	var text string
	if raw, ok := rich["text/plain"]; ok && json.Unmarshal(raw, &text) == nil {
		line["text"] = unquoted(text)
	}
	if len(extra) > 0 {
		line["extra"] = extra
	}
	if line["is_main_result"] == nil {
		line["is_main_result"] = last && text != "" && rich["image/png"] == nil
	}
	return line
}

// unquoted takes the quotes of a text away, as E2B does.
func unquoted(text string) string {
	if n := len(text); n >= 2 && (text[0] == '\'' || text[0] == '"') && text[n-1] == text[0] {
		return text[1 : n-1]
	}
	return text
}

// failed is the error of a run, nil when there is none. What the code itself threw is read from what it complained.
func failed(res *sandbox.Result, lang, complaint string) map[string]any {
	is := func(name, value, traceback string) map[string]any {
		return map[string]any{"type": "error", "name": name, "value": value, "traceback": traceback}
	}
	switch res.Status {
	case sandbox.StatusExited:
		if res.ExitCode == nil || *res.ExitCode == 0 {
			return nil
		}
		if name, value, ok := codeoutput.Thrown(lang, complaint); ok {
			return is(name, value, complaint)
		}
		return is("ExitError", fmt.Sprintf("the code ended with exit code %d", *res.ExitCode), complaint)
	case sandbox.StatusTimeout:
		return is("TimeoutError", fmt.Sprintf("the code took longer than %s", sandbox.MaxCodeTimeout), "")
	case sandbox.StatusOOM:
		return is("MemoryError", "the code ran out of memory", "")
	case sandbox.StatusLost:
		return is("SandboxError", "the sandbox ended under the code", "")
	}
	return is("KeyboardInterrupt", "the code was ended", "")
}

// contextView is a context as the SDKs want it.
type contextView struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Cwd      string `json:"cwd"`
}

func (a interpreter) createContext(w http.ResponseWriter, r *http.Request, q request) error {
	var b struct {
		Language string `json:"language"`
		Cwd      string `json:"cwd"`
	}
	if err := readJSON(r, q, &b); err != nil {
		return err
	}
	lang, err := language(b.Language)
	if err == nil && !contextLanguages[lang] {
		err = notSupported("contexts of " + lang)
	}
	if err != nil {
		return err
	}
	dir, err := workingDir(b.Cwd)
	if err != nil {
		return err
	}
	if _, err := a.known.find(r.Context(), q, false); err != nil {
		return err
	}
	cc, err := a.o.Contexts.CreateContext(r.Context(), q.caller, q.thread, sandbox.ContextRequest{Language: lang, Cwd: dir})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, contextView{cc.ContextID, cc.Language, cc.Cwd})
	return nil
}

func (a interpreter) listContexts(w http.ResponseWriter, r *http.Request, q request) error {
	view, err := a.known.find(r.Context(), q, false)
	if err != nil {
		return err
	}
	list, err := a.o.Contexts.Contexts(r.Context(), q.caller, q.thread)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(slices.Clone(list), func(cc sandbox.CodeContext) bool { return cc.State == sandbox.ContextLost })
	out := []contextView{}
	for _, id := range slices.Sorted(maps.Keys(defaults)) {
		lang := defaults[id]
		if own := view.Labels[labelContext+lang]; own == "" || !slices.ContainsFunc(list, func(cc sandbox.CodeContext) bool { return cc.ContextID == own }) {
			out = append(out, contextView{id, lang, homeDir})
		}
	}
	for _, cc := range list {
		out = append(out, contextView{cc.ContextID, cc.Language, cc.Cwd})
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// contextOf is the context that the path of a request names: /contexts/{id} or /contexts/{id}/restart.
func (a interpreter) contextOf(r *http.Request, q request) (string, error) {
	view, err := a.known.find(r.Context(), q, false)
	if err != nil {
		return "", err
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/contexts/"), "/")
	lang := defaults[name]
	if lang == "" {
		return name, nil
	}
	if id := view.Labels[labelContext+lang]; id != "" {
		return id, nil
	}
	return a.defaultContext(r.Context(), q, lang)
}

func (a interpreter) restartContext(w http.ResponseWriter, r *http.Request, q request) error {
	id, err := a.contextOf(r, q)
	if err != nil {
		return err
	}
	if _, err := a.o.Contexts.RestartContext(r.Context(), q.caller, q.thread, id); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, nil)
	return nil
}

func (a interpreter) deleteContext(w http.ResponseWriter, r *http.Request, q request) error {
	id, err := a.contextOf(r, q)
	if err != nil {
		return err
	}
	if err := a.o.Contexts.DeleteContext(r.Context(), q.caller, q.thread, id); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, nil)
	return nil
}
