package jupyter

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/skerry-sandbox/skerry/internal/api/held"
	"github.com/skerry-sandbox/skerry/internal/api/inprocess"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

const (
	// prefix is below what the routes are.
	prefix = "/jupyter"
	// threadPrefix and a kernel's id are the name of its thread.
	threadPrefix = "jupyter-"
	// label marks the threads of kernels; its value is the kernel's name.
	label = "jupyter-kernel"
	// startWait is how long a kernel waits for its sandbox, in seconds.
	startWait = 60
	// maxBody bounds the JSON of a request, in bytes.
	maxBody = 64 << 10
	// requestTime is how long a request may take to arrive.
	requestTime = time.Minute
)

// specification is a kind of kernel.
type specification struct {
	language, shown, extension, mime string
}

// specifications are the kernels that there are, by their names. defaultName is that of a request without one.
var specifications = map[string]specification{
	defaultName:  {"python", "Python 3", ".py", "text/x-python"},
	"javascript": {"javascript", "JavaScript", ".js", "text/javascript"},
	"typescript": {"typescript", "TypeScript", ".ts", "text/typescript"},
}

const defaultName = "python3"

// Options of New.
type Options struct {
	// API is the handler of the public API.
	API http.Handler
	// Template is that of the kernels; "" is the server's own default.
	Template string
	// Held bounds the messages that are in memory, with what the other adapters hold.
	Held *held.Bytes
}

type adapter struct {
	Options
	mux    *http.ServeMux
	joined joined
}

// New returns a handler that answers clients of Jupyter below /jupyter, and all else by o.API.
func New(o Options) (http.Handler, error) {
	if o.API == nil || o.Held == nil {
		return nil, errors.New("jupyter: a part is missing")
	}
	a := &adapter{Options: o, mux: http.NewServeMux()}
	a.mux.HandleFunc(prefix+"/", unknown)
	a.route("GET /api", func(c *call) error { return c.answer(http.StatusOK, map[string]string{"version": "2.0"}) })
	a.route("GET /api/kernelspecs", kernelspecs)
	a.route("GET /api/kernels", a.list)
	a.route("POST /api/kernels", a.create)
	a.route("GET /api/kernels/{kernel}", a.get)
	a.route("DELETE /api/kernels/{kernel}", a.remove)
	a.route("POST /api/kernels/{kernel}/interrupt", a.interrupt)
	a.route("POST /api/kernels/{kernel}/restart", a.restart)
	a.route("GET /api/kernels/{kernel}/channels", a.channels)
	return inprocess.Below(prefix, a.mux, a.API), nil
}

// call is one request of a client.
type call struct {
	inprocess.Caller
	secret string
	holds  *held.Request // what the request keeps of answers; nil: of a connection, whose messages have their own
}

// route adds one. What its handler returns as an error is answered as Jupyter does.
func (a *adapter) route(pattern string, handle func(c *call) error) {
	method, path, _ := strings.Cut(pattern, " ")
	a.mux.HandleFunc(method+" "+prefix+path, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(requestTime)) // fails where there is no connection
		c := &call{Caller: inprocess.Caller{API: a.API, W: w, R: r}, secret: credential(r)}
		c.holds = a.Held.Of(holderOf(c.secret))
		defer c.holds.End()
		if err := handle(c); err != nil {
			fail(w, err)
		}
	})
}

// holderOf is whose bytes are counted: by the credential, a key or a token of a user.
func holderOf(secret string) string { return "jupyter\x00" + secret }

// credential is the key, or the token, that a request came with: "Authorization: token …", or as Bearer, or ?token=…, as clients
// of Jupyter send it.
func credential(r *http.Request) string {
	if scheme, secret, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && (strings.EqualFold(scheme, "token") || strings.EqualFold(scheme, "Bearer")) {
		return strings.TrimSpace(secret)
	}
	return r.URL.Query().Get("token")
}

// into calls the API, and reads its answer unless out is nil.
func (c *call) into(q inprocess.Request, out any) error {
	q.Secret = c.secret
	if c.holds != nil {
		q.Kept = c.holds.Answer(c.R.Context())
	}
	if out == nil {
		_, err := c.Call(q)
		return err
	}
	return c.Into(q, out)
}

func (c *call) answer(status int, v any) error {
	inprocess.Write(c.W, status, v)
	return nil
}

// kernel is the id that the path names.
func (c *call) kernel() (string, error) {
	text := c.R.PathValue("kernel")
	id, err := uuid.Parse(text)
	if err != nil || id.String() != text {
		return "", sandbox.Errorf(sandbox.NotFound, "Kernel does not exist: %.64q", text)
	}
	return text, nil
}

func threadPath(kernel, rest string) string { return "/api/threads/" + threadPrefix + kernel + rest }

// context returns the context of a kernel. The kernel is there as long as it is.
func (c *call) context(kernel string) (sandbox.CodeContext, error) {
	var page struct {
		Items []sandbox.CodeContext `json:"items"`
	}
	err := c.into(inprocess.Request{Method: http.MethodGet, Path: threadPath(kernel, "/contexts")}, &page)
	var refused *inprocess.Refusal
	switch {
	case err == nil && len(page.Items) == 0, errors.As(err, &refused) && refused.Status == http.StatusNotFound:
		return sandbox.CodeContext{}, sandbox.Errorf(sandbox.NotFound, "Kernel does not exist: %s", kernel)
	case err != nil:
		return sandbox.CodeContext{}, err
	}
	return page.Items[0], nil
}

// model is a kernel as Jupyter describes it.
type model struct {
	ID          string    `json:"id"`
	Name        string    `json:"name"`
	LastActive  time.Time `json:"last_activity"`
	State       string    `json:"execution_state"`
	Connections int       `json:"connections"`
}

// states are Jupyter's words for what a context does.
var states = map[sandbox.ContextState]string{sandbox.ContextStarting: "starting", sandbox.ContextIdle: "idle", sandbox.ContextBusy: "busy", sandbox.ContextLost: "dead"}

func (a *adapter) model(kernel string, cc sandbox.CodeContext) model {
	name := cc.Language
	if name == "python" {
		name = defaultName
	}
	return model{kernel, name, cc.LastUsedAt, states[cc.State], a.joined.of(kernel)}
}

func kernelspecs(c *call) error {
	specs := map[string]any{}
	for name, s := range specifications {
		specs[name] = map[string]any{"name": name, "resources": map[string]string{}, "spec": map[string]any{
			"argv": []string{}, "env": map[string]string{}, "display_name": s.shown, "language": s.language, "interrupt_mode": "message", "metadata": map[string]any{},
		}}
	}
	// Whoever may not call at all learns nothing here either.
	if err := c.Admit(c.secret); err != nil {
		return err
	}
	return c.answer(http.StatusOK, map[string]any{"default": defaultName, "kernelspecs": specs})
}

// list answers with the kernels of the caller, at most a thousand. Whether one is busy stands in its own model.
func (a *adapter) list(c *call) error {
	all := []model{}
	for name := range specifications {
		var page struct {
			Items []sandbox.ThreadView `json:"items"`
		}
		q := inprocess.Request{Method: http.MethodGet, Path: "/api/threads", Query: map[string]string{"label": label + "=" + name, "limit": "1000"}}
		if err := c.into(q, &page); err != nil {
			return err
		}
		for _, t := range page.Items {
			if kernel, ok := strings.CutPrefix(t.ID, threadPrefix); ok {
				all = append(all, model{kernel, name, t.LastActiveAt, states[sandbox.ContextIdle], a.joined.of(kernel)})
			}
		}
	}
	return c.answer(http.StatusOK, all)
}

// create starts a kernel: a thread with a context. What it began it removes when it fails.
func (a *adapter) create(c *call) error {
	if err := c.Admit(c.secret); err != nil {
		return err
	}
	name, err := kernelName(c)
	if err != nil {
		return err
	}
	kernel := uuid.NewString()
	start := map[string]any{"wait_s": startWait, "labels": map[string]string{label: name}}
	if a.Template != "" {
		start["template"] = a.Template
	}
	if err := c.into(inprocess.Request{Method: http.MethodPut, Path: threadPath(kernel, "/sandbox"), Body: start}, nil); err != nil {
		return err
	}
	var cc sandbox.CodeContext
	err = c.into(inprocess.Request{Method: http.MethodPost, Path: threadPath(kernel, "/contexts"), Body: map[string]string{"language": specifications[name].language}}, &cc)
	if err != nil {
		return errors.Join(err, c.into(inprocess.Request{Method: http.MethodDelete, Path: threadPath(kernel, "")}, nil))
	}
	c.W.Header().Set("Location", prefix+"/api/kernels/"+kernel)
	return c.answer(http.StatusCreated, a.model(kernel, cc))
}

// kernelName reads the body of POST /api/kernels, which may be empty. Jupyter knows more fields, which do not matter here.
func kernelName(c *call) (string, error) {
	raw, err := io.ReadAll(http.MaxBytesReader(c.W, c.R.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return "", sandbox.Errorf(sandbox.QuotaExceeded, "the body has more than %d bytes", maxBody)
	case err != nil:
		return "", sandbox.Wrap(sandbox.Invalid, err, "the body did not arrive whole")
	}
	var body struct {
		Name string `json:"name"`
	}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &body); err != nil {
			return "", sandbox.Errorf(sandbox.Invalid, "the body: %.300s", err.Error())
		}
	}
	if body.Name == "" {
		return defaultName, nil
	}
	if _, ok := specifications[body.Name]; !ok {
		return "", sandbox.Errorf(sandbox.Invalid, "name: there is no kernel %.64q; GET %s/api/kernelspecs lists those that there are", body.Name, prefix)
	}
	return body.Name, nil
}

func (a *adapter) get(c *call) error {
	kernel, cc, err := c.existing()
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, a.model(kernel, cc))
}

// existing is the kernel that the path names, with its context.
func (c *call) existing() (string, sandbox.CodeContext, error) {
	kernel, err := c.kernel()
	if err != nil {
		return "", sandbox.CodeContext{}, err
	}
	cc, err := c.context(kernel)
	return kernel, cc, err
}

func (a *adapter) remove(c *call) error {
	kernel, err := c.kernel()
	if err != nil {
		return err
	}
	if err := c.into(inprocess.Request{Method: http.MethodDelete, Path: threadPath(kernel, "")}, nil); err != nil {
		return err
	}
	c.W.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *adapter) interrupt(c *call) error {
	kernel, cc, err := c.existing()
	if err != nil {
		return err
	}
	if err := c.interrupt(kernel, cc.ContextID); err != nil {
		return err
	}
	c.W.WriteHeader(http.StatusNoContent)
	return nil
}

// interrupt ends the run in a kernel. One that runs nothing has nothing to end.
func (c *call) interrupt(kernel, contextID string) error {
	return c.into(inprocess.Request{Method: http.MethodPost, Path: threadPath(kernel, "/contexts/"+contextID+"/interrupt")}, nil)
}

func (a *adapter) restart(c *call) error {
	kernel, cc, err := c.existing()
	if err != nil {
		return err
	}
	if err := c.restart(kernel, cc.ContextID); err != nil {
		return err
	}
	if cc, err = c.context(kernel); err != nil {
		return err
	}
	return c.answer(http.StatusOK, a.model(kernel, cc))
}

func (c *call) restart(kernel, contextID string) error {
	return c.into(inprocess.Request{Method: http.MethodPost, Path: threadPath(kernel, "/contexts/"+contextID+"/restart")}, nil)
}

// fail answers with an error.
func fail(w http.ResponseWriter, err error) {
	status, code, detail := inprocess.Reason(w, err)
	inprocess.Write(w, status, map[string]string{"message": detail, "reason": code})
}

// unknown answers what is not served: loudly, so that a client's other needs are noticed.
func unknown(w http.ResponseWriter, r *http.Request) {
	what := r.Method + " " + strings.ToValidUTF8(r.URL.Path[:min(len(r.URL.Path), 200)], "?")
	fail(w, sandbox.Errorf(sandbox.NotSupported, "%s is not supported: docs/jupyter.md lists what is", what))
}
