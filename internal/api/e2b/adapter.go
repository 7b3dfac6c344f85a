package e2b

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"github.com/skerry-sandbox/skerry/internal/api/auth"
	"github.com/skerry-sandbox/skerry/internal/api/e2b/envd/filesystem/filesystemconnect"
	"github.com/skerry-sandbox/skerry/internal/api/e2b/envd/process/processconnect"
	"github.com/skerry-sandbox/skerry/internal/api/held"
	"github.com/skerry-sandbox/skerry/internal/api/rest"
	"github.com/skerry-sandbox/skerry/internal/api/rest/route"
	"github.com/skerry-sandbox/skerry/internal/platform/keylock"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/service"
)

// envdVersion says which abilities the SDKs may use: watches of network mounts are the newest that we have. No folder of a
// sandbox is one.
const envdVersion = "0.6.4"

// maxBodyBytes bounds a request that is no file.
const maxBodyBytes = 32 << 20

// Options are the use cases behind the adapter.
type Options struct {
	service.Service
	DefaultTemplate string
	// Templates are templates of this server, by the names that clients ask for.
	Templates map[string]string
	// Held bounds the bodies that are in memory, with those of the other adapters.
	Held *held.Bytes
	Log  *slog.Logger
}

// Adapter is E2B's API. Close ends what waits in it.
type Adapter struct {
	o        Options
	known    *knownSandboxes
	watchers *watchers
	guesses  *auth.Guesses         // of signatures, which are compared with all sandboxes
	locks    keylock.Locks[string] // of what must not be done twice at once
}

// New makes the adapter.
func New(o Options) *Adapter {
	a := &Adapter{o: o, watchers: newWatchers(), guesses: auth.NewGuesses()}
	a.known = newKnown(o.Service, o.Log, &a.locks)
	return a
}

// Close forgets when sandboxes end: the server that serves them next finds it in their labels.
func (a *Adapter) Close() { a.known.close() }

// request is what a handler knows of who asks, and about what.
type request struct {
	caller sandbox.Caller
	thread string
	token  string // the one of the sandbox, as its client has it
	held   *held.Request
}

type requestKey struct{}

func requestOf(ctx context.Context) request {
	q, _ := ctx.Value(requestKey{}).(request)
	return q
}

// handler answers with errors in the shape of E2B's API.
type handler func(w http.ResponseWriter, r *http.Request, q request) error

// Routes are all that the SDKs call, for api/rest to serve.
func (a *Adapter) Routes() rest.Adapter {
	b := &routes{a: a}
	b.control()
	b.envd()
	b.interpreter()
	b.refused()
	return rest.Adapter{Prepare: a.prepare, Refused: refusal, Routes: b.list}
}

type routes struct {
	a    *Adapter
	list []rest.AdapterRoute
}

func (b *routes) add(adapted rest.AdapterRoute, h handler) {
	adapted.Serve = func(w http.ResponseWriter, r *http.Request, c sandbox.Caller, thread string) {
		holds := b.a.o.Held.Of(held.CallerOf(c))
		defer holds.End()
		if err := h(w, r, request{caller: c, thread: thread, token: token(r, thread), held: holds}); err != nil {
			b.a.writeError(w, r, err)
		}
	}
	b.list = append(b.list, adapted)
}

// control is what E2B's API server does.
func (b *routes) control() {
	const one = "/sandboxes/:thread"
	for _, version := range []string{"", "/v2"} {
		b.add(rest.AdapterRoute{Method: http.MethodPost, Path: version + "/sandboxes", Thread: newSandboxID, Server: route.Holder}, control{b.a}.create)
		b.add(rest.AdapterRoute{Method: http.MethodGet, Path: version + "/sandboxes"}, control{b.a}.list)
		b.add(rest.AdapterRoute{Method: http.MethodPost, Path: version + one + "/connect", Server: route.Holder}, control{b.a}.connect)
	}
	b.add(rest.AdapterRoute{Method: http.MethodGet, Path: "/templates"}, templates{b.a}.list)
	b.add(rest.AdapterRoute{Method: http.MethodGet, Path: "/templates/*rest"}, templates{b.a}.alias)
	b.add(rest.AdapterRoute{Method: http.MethodGet, Path: one, Server: route.Owner}, control{b.a}.get)
	b.add(rest.AdapterRoute{Method: http.MethodDelete, Path: one, Server: route.Holder}, control{b.a}.kill)
	b.add(rest.AdapterRoute{Method: http.MethodGet, Path: one + "/metrics", Server: route.Holder}, control{b.a}.metrics)
	b.add(rest.AdapterRoute{Method: http.MethodPost, Path: one + "/timeout", Server: route.Holder}, control{b.a}.timeout)
	b.add(rest.AdapterRoute{Method: http.MethodPost, Path: one + "/refreshes", Server: route.Holder}, control{b.a}.refresh)
	b.add(rest.AdapterRoute{Method: http.MethodPost, Path: one + "/resume", Server: route.Holder}, control{b.a}.resume)
	b.add(rest.AdapterRoute{Method: http.MethodPost, Path: one + "/pause", Server: route.Holder}, control{b.a}.pause)
}

// sandboxHeader names the sandbox of a request to envd or the interpreter, which come to one host.
const sandboxHeader = "E2b-Sandbox-Id"

func named(r *http.Request) string {
	if id := r.Header.Get(sandboxHeader); id != "" {
		return id
	}
	return "unnamed" // no thread of ours has that name, so that it is 502
}

const filesPath = "/files"

// envd is what E2B's daemon in a sandbox does.
func (b *routes) envd() {
	_, processes := processconnect.NewProcessHandler(&processService{a: b.a}, bounded())
	_, filesystem := filesystemconnect.NewFilesystemHandler(&filesystemService{a: b.a}, bounded())
	errs := connect.NewErrorWriter()
	rpc := func(adapted rest.AdapterRoute, h http.Handler) {
		adapted.Method, adapted.Thread, adapted.Server = http.MethodPost, named, route.Holder
		adapted.Serve = func(w http.ResponseWriter, r *http.Request, c sandbox.Caller, thread string) {
			holds := b.a.o.Held.Of(held.CallerOf(c))
			defer holds.End()
			if err := holds.TakeBody(r.Context(), lengthOf(r), maxBodyBytes); err != nil {
				if m, _ := toE2BError(err); m.status == http.StatusTooManyRequests {
					w.Header().Set("Retry-After", retryAfter)
				}
				_ = errs.Write(w, r, b.a.rpcError(r.Context(), err)) // the client is gone when this fails
				return
			}
			// All of it, before a stream begins: a body that is not at its end has a deadline, and would end the stream.
			body, err := io.ReadAll(io.LimitReader(r.Body, maxBodyBytes+1))
			if err != nil || len(body) > maxBodyBytes {
				b.a.writeError(w, r, sandbox.Errorf(sandbox.Invalid, "the body ended too early, or is longer than %d bytes", maxBodyBytes))
				return
			}
			if !packed(r) {
				holds.KeepBody(len(body))
			}
			r = r.WithContext(context.WithValue(r.Context(), requestKey{}, request{c, thread, token(r, thread), holds}))
			r.Body = io.NopCloser(bytes.NewReader(body))
			h.ServeHTTP(w, r)
		}
		b.list = append(b.list, adapted)
	}
	rpc(rest.AdapterRoute{Path: processconnect.ProcessStartProcedure, Starts: true}, processes)
	rpc(rest.AdapterRoute{Path: processconnect.ProcessConnectProcedure, Follows: true}, processes)
	for _, path := range []string{
		processconnect.ProcessListProcedure, processconnect.ProcessUpdateProcedure, processconnect.ProcessSendInputProcedure,
		processconnect.ProcessSendSignalProcedure, processconnect.ProcessCloseStdinProcedure,
	} {
		rpc(rest.AdapterRoute{Path: path}, processes)
	}
	rpc(rest.AdapterRoute{Path: filesystemconnect.FilesystemWatchDirProcedure, Endless: true}, filesystem)
	for _, path := range []string{
		filesystemconnect.FilesystemStatProcedure, filesystemconnect.FilesystemMakeDirProcedure, filesystemconnect.FilesystemMoveProcedure,
		filesystemconnect.FilesystemListDirProcedure, filesystemconnect.FilesystemRemoveProcedure, filesystemconnect.FilesystemCreateWatcherProcedure,
		filesystemconnect.FilesystemGetWatcherEventsProcedure, filesystemconnect.FilesystemRemoveWatcherProcedure,
	} {
		rpc(rest.AdapterRoute{Path: path}, filesystem)
	}
	b.add(rest.AdapterRoute{Method: http.MethodGet, Path: filesPath, Thread: named, Server: route.FileReader}, transfers{b.a}.download)
	b.add(rest.AdapterRoute{Method: http.MethodPost, Path: filesPath, Thread: named, Server: route.FileWriter}, transfers{b.a}.upload)
	b.add(rest.AdapterRoute{Method: http.MethodGet, Path: "/health", Thread: named, Server: route.Owner}, control{b.a}.health)
}

// interpreter is what E2B's code interpreter in a sandbox does.
func (b *routes) interpreter() {
	add := func(method, path string, starts bool, h handler) {
		b.add(rest.AdapterRoute{Method: method, Path: path, Thread: named, Server: route.Holder, Starts: starts}, h)
	}
	add(http.MethodPost, "/execute", true, interpreter{b.a}.execute)
	add(http.MethodPost, "/contexts", false, interpreter{b.a}.createContext)
	add(http.MethodGet, "/contexts", false, interpreter{b.a}.listContexts)
	add(http.MethodPost, "/contexts/:context/restart", false, interpreter{b.a}.restartContext)
	add(http.MethodDelete, "/contexts/:context", false, interpreter{b.a}.deleteContext)
}

// refused are the parts of E2B's API that we do not have, by name.
func (b *routes) refused() {
	refuse := func(what, method string, paths ...string) {
		for _, path := range paths {
			adapted := rest.AdapterRoute{Method: method, Path: path}
			if !strings.HasPrefix(path, "/sandboxes/:thread/") && strings.Contains(path, ".") {
				adapted.Thread = named
			}
			b.add(adapted, func(http.ResponseWriter, *http.Request, request) error { return notSupported(what) })
		}
	}
	refuse("snapshots", http.MethodPost, "/sandboxes/:thread/snapshots")
	refuse("snapshots", http.MethodGet, "/snapshots")
	refuse("fork", http.MethodPost, "/sandboxes/:thread/fork")
	refuse("network rules", http.MethodPut, "/sandboxes/:thread/network")
	refuse("metrics of many sandboxes", http.MethodGet, "/sandboxes/metrics")
	refuse("logs", http.MethodGet, "/sandboxes/:thread/logs", "/v2/sandboxes/:thread/logs")
	refuse("StreamInput", http.MethodPost, "/process.Process/StreamInput")
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if method != http.MethodGet {
			refuse("templates", method, "/templates", "/templates/*rest")
		}
		for what, root := range map[string]string{"volumes": "/volumes", "secrets": "/secrets", "teams": "/teams", "API keys": "/api-keys"} {
			refuse(what, method, root, root+"/*rest")
		}
		refuse("templates", method, "/v2/templates", "/v2/templates/*rest", "/v3/templates", "/v3/templates/*rest")
	}
}

// newSandboxID is the thread of a new sandbox. It can be part of a host name, as E2B's are. A request that is repeated
// with its Idempotency-Key is about the same thread, so that there is one sandbox. Users for whom one key acts have sandboxes
// of different names, and so different tokens.
func newSandboxID(r *http.Request) string {
	var raw [32]byte
	rand.Read(raw[:]) //nolint:errcheck // never fails
	if key := r.Header.Get(sandbox.KeyHeader); key != "" {
		if user := r.Header.Get(onBehalfHeader); user != "" {
			key += "\x00" + user
		}
		raw = sha256.Sum256([]byte(key))
	}
	return idPrefix + strings.ToLower(base32.StdEncoding.EncodeToString(raw[:15]))
}

// idPrefix begins all of them, so that a key can be for such threads alone ("e2b*").
const idPrefix = "e2b"

func notSupported(what string) error {
	return sandbox.Errorf(sandbox.NotSupported, "not supported: %s (docs/e2b.md lists what is)", what)
}

// errNoSandbox is said where E2B says 502: the SDKs take that for a sandbox that has ended.
var errNoSandbox = errors.New("the sandbox was not found")
