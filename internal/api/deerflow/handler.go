// Package deerflow makes a server a drop-in for the sandboxes of DeerFlow. It answers the requests of
// DeerFlow's sandbox provisioner. It also has an address for each sandbox, which answers DeerFlow's requests
// to its all-in-one sandbox.
//
// Each of them becomes requests of the public API, which are answered by its handler in this process. So they are authenticated, limited, recorded,
// judged by the policy and passed on to other servers as all requests are.
//
// DeerFlow sends its key to the provisioner only. The address of a sandbox therefore holds a key of its own, which is good for that sandbox's
// thread alone: who knows the address may use the thread. It ends with the sandbox, and with the key that it was derived from.
package deerflow

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/api/auth"
	"github.com/skerry-sandbox/skerry/internal/api/held"
	"github.com/skerry-sandbox/skerry/internal/api/inprocess"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// prefix is below what the routes are; DeerFlow's provisioner_url ends in it.
const prefix = "/deerflow"

// keys are those of the addresses. *auth.Keys says what each call means.
type keys interface {
	Derive(ctx context.Context, cred auth.Credential, name, thread string) (auth.Derived, error)
	Derived(ctx context.Context, cred auth.Credential, name string) (auth.Derived, error)
	AllDerived(ctx context.Context, cred auth.Credential, prefix string) ([]auth.Derived, error)
	ForgetDerived(ctx context.Context, cred auth.Credential, name string) error
	ThreadOf(ctx context.Context, cred auth.Credential) (thread string, c sandbox.Caller, err error)
}

// Options of New.
type Options struct {
	// API is the handler of the public API.
	API  http.Handler
	Keys keys
	// Held bounds the bodies and files that are in memory, with those of the other adapters.
	Held *held.Bytes
	// URL is where DeerFlow reaches this server, without a path; "": where its request came to.
	URL string
}

type adapter struct {
	Options
	mux *http.ServeMux
}

// New returns a handler that answers DeerFlow below /deerflow, and all else by o.API.
func New(o Options) (http.Handler, error) {
	if o.API == nil || o.Keys == nil || o.Held == nil {
		return nil, errors.New("deerflow: a part is missing")
	}
	o.URL = strings.TrimSuffix(o.URL, "/")
	a := &adapter{Options: o, mux: http.NewServeMux()}
	a.mux.Handle("/", o.API)
	a.mux.HandleFunc(prefix+"/", unknown)
	a.mux.HandleFunc("GET "+prefix+"/health", func(w http.ResponseWriter, _ *http.Request) {
		inprocess.Write(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	a.provisioner("GET /api/capabilities", a.capabilities)
	a.provisioner("POST /api/sandboxes", a.create)
	a.provisioner("GET /api/sandboxes", a.list)
	a.provisioner("GET /api/sandboxes/{sandbox}", a.get)
	a.provisioner("DELETE /api/sandboxes/{sandbox}", a.remove)
	a.sandbox("GET /v1/sandbox", a.about)
	a.sandbox("POST /v1/shell/exec", a.shellExec)
	a.sandbox("POST /v1/shell/sessions/create", a.shellSession)
	a.sandbox("DELETE /v1/shell/sessions/{session}", a.endShellSession)
	a.sandbox("POST /v1/bash/exec", a.bashExec)
	a.sandbox("POST /v1/file/read", a.readFile)
	a.sandbox("POST /v1/file/write", a.writeFile)
	a.sandbox("GET /v1/file/download", a.download)
	a.sandbox("POST /v1/file/find", a.find)
	a.sandbox("POST /v1/file/list", a.listFiles)
	a.sandbox("POST /v1/file/grep", a.grep)
	return inprocess.Below(prefix, a.mux, a.API), nil
}

// provisioner adds a route of the provisioner. Its handler runs when the API has taken the key.
func (a *adapter) provisioner(pattern string, handle func(x *exchange) error) {
	method, path, _ := strings.Cut(pattern, " ")
	a.mux.HandleFunc(method+" "+prefix+path, func(w http.ResponseWriter, r *http.Request) {
		x := a.begin(w, r)
		x.cred.Secret = r.Header.Get("X-API-Key")
		x.finish(func() error {
			if x.cred.Secret == "" {
				return sandbox.Errorf(sandbox.Unauthorized, "send the key in X-API-Key: provisioner_api_key in DeerFlow's configuration")
			}
			// The API refuses, slows and records what does not do.
			if err := x.do(inprocess.Request{Method: http.MethodGet, Path: "/api/threads", Query: map[string]string{"limit": "1"}}); err != nil {
				return err
			}
			// By the credential, as its caller is known to the API alone.
			x.held = a.Held.Of("deerflow\x00" + x.cred.Secret)
			defer x.held.End()
			return handle(x)
		}())
	})
}

// sandbox adds a route of a sandbox, at the address that holds its key.
func (a *adapter) sandbox(pattern string, handle func(x *exchange) error) {
	method, path, _ := strings.Cut(pattern, " ")
	a.mux.HandleFunc(method+" "+prefix+"/sandboxes/{key}"+path, func(w http.ResponseWriter, r *http.Request) {
		x := a.begin(w, r)
		x.cred.Secret = r.PathValue("key")
		x.finish(func() (err error) {
			var caller sandbox.Caller
			if x.thread, caller, err = a.Keys.ThreadOf(r.Context(), x.cred); err != nil {
				if refused := x.do(inprocess.Request{Method: http.MethodGet, Path: "/api/threads", Query: map[string]string{"limit": "1"}}); refused != nil {
					return refused // recorded
				}
				return err
			}
			x.held = a.Held.Of(held.CallerOf(caller))
			defer x.held.End()
			return handle(x)
		}())
	})
}

// unknown answers what DeerFlow was not seen to send: loudly, so that another version of it is noticed.
func unknown(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if _, rest, ok := strings.Cut(strings.TrimPrefix(path, prefix+"/sandboxes/"), "/"); ok && strings.HasPrefix(path, prefix+"/sandboxes/") {
		path = "/" + rest // without the key
	}
	fail(w, http.StatusNotImplemented, string(sandbox.NotSupported), r.Method+" "+brief(path)+" is not supported: docs/deerflow.md lists what is")
}
