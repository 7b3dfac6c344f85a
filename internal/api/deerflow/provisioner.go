package deerflow

import (
	"errors"
	"net/http"
	"regexp"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/api/auth"
	"github.com/skerry-sandbox/skerry/internal/api/inprocess"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// keyName is what the names of the keys of addresses begin with; the sandbox's id follows.
const keyName = "deerflow "

// createWait is how long a creation waits for the sandbox: DeerFlow waits 30 s.
const createWait = 20

// maxMounts is how many mounts DeerFlow's own provisioner takes.
const maxMounts = 10

var sandboxID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// created is the body of POST /api/sandboxes.
type created struct {
	SandboxID string `json:"sandbox_id"`
	ThreadID  string `json:"thread_id"`
	UserID    string `json:"user_id"`
	// What a folder of DeerFlow's host would be mounted for comes from Skerry's own library of skills, or is not there: nothing of this host is mounted
	// because a caller asks for it.
	ExtraMounts []struct {
		HostPath      string `json:"host_path"`
		ContainerPath string `json:"container_path"`
		ReadOnly      bool   `json:"read_only"`
	} `json:"extra_mounts"`
	IncludeLegacySkills bool `json:"include_legacy_skills"`
	// As from a provisioner without their images, which capabilities tells.
	ProvisionLarkCLIRuntime bool `json:"provision_lark_cli_runtime"`
	ProvisionLarkCLIBroker  bool `json:"provision_lark_cli_broker"`
}

// check says what is wrong with it, and puts in what DeerFlow's own provisioner does.
func (c *created) check() error {
	if c.UserID == "" {
		c.UserID = "default"
	}
	if c.ThreadID == "" {
		c.ThreadID = c.SandboxID
	}
	switch {
	case !sandboxID.MatchString(c.SandboxID):
		return sandbox.Errorf(sandbox.Invalid, "sandbox_id: use 1 to 64 of the characters A-Z a-z 0-9 _ -")
	case !sandboxID.MatchString(c.ThreadID):
		return sandbox.Errorf(sandbox.Invalid, "thread_id: use 1 to 64 of the characters A-Z a-z 0-9 _ -")
	case len(c.ExtraMounts) > maxMounts:
		return sandbox.Errorf(sandbox.Invalid, "extra_mounts: at most %d", maxMounts)
	}
	return sandbox.CheckOwnerName("user_id", c.UserID)
}

// provisioned is a sandbox as the provisioner shows it.
type provisioned struct {
	SandboxID string `json:"sandbox_id"`
	URL       string `json:"sandbox_url"`
	Status    string `json:"status"`
}

// threadView is what matters here of a thread.
type threadView struct {
	ThreadID string        `json:"thread_id"`
	Sandbox  *sandbox.Info `json:"sandbox"`
}

// phase says the state of a sandbox in the words of Kubernetes; "" when there is none.
func phase(s *sandbox.Info) string {
	if s == nil {
		return ""
	}
	switch s.State {
	case sandbox.Starting:
		return "Pending"
	case sandbox.Running, sandbox.Paused, sandbox.Hibernated: // the next command wakes it
		return "Running"
	case sandbox.Lost:
		return "Failed"
	}
	return "Unknown"
}

func (x *exchange) shown(d auth.Derived, s *sandbox.Info) provisioned {
	base := x.URL
	if base == "" { // the API has looked at the Host
		base = "http://" + x.r.Host
		if x.r.TLS != nil {
			base = "https://" + x.r.Host
		}
	}
	return provisioned{SandboxID: strings.TrimPrefix(d.Name, keyName), URL: base + prefix + "/sandboxes/" + d.Secret, Status: phase(s)}
}

func (*adapter) capabilities(x *exchange) error {
	inprocess.Write(x.w, http.StatusOK, map[string]bool{"lark_cli_init_image": false, "lark_cli_broker_image": false})
	return nil
}

func (a *adapter) create(x *exchange) error {
	var c created
	if err := x.body(&c); err != nil {
		return err
	}
	if err := c.check(); err != nil {
		return err
	}
	cred := x.cred
	cred.OnBehalfOf = c.UserID
	d, err := a.Keys.Derive(x.r.Context(), cred, keyName+c.SandboxID, c.ThreadID)
	if err != nil {
		return err
	}
	x.cred.Secret = d.Secret
	var got threadView
	put := inprocess.Request{Method: http.MethodPut, Path: "/api/threads/" + d.Thread + "/sandbox", Body: map[string]any{"wait_s": createWait}}
	if err := x.into(put, &got); err != nil {
		return err
	}
	inprocess.Write(x.w, http.StatusOK, x.shown(d, got.Sandbox))
	return nil
}

func (a *adapter) get(x *exchange) error {
	d, err := a.derived(x)
	if err != nil {
		return err
	}
	x.cred.Secret = d.Secret
	var got threadView
	if err := x.into(inprocess.Request{Method: http.MethodGet, Path: "/api/threads/" + d.Thread}, &got); err != nil {
		return err
	}
	if got.Sandbox == nil {
		return noSandbox(x)
	}
	inprocess.Write(x.w, http.StatusOK, x.shown(d, got.Sandbox))
	return nil
}

// derived returns the key of the sandbox that the path names.
func (a *adapter) derived(x *exchange) (auth.Derived, error) {
	id := x.r.PathValue("sandbox")
	if !sandboxID.MatchString(id) {
		return auth.Derived{}, noSandbox(x)
	}
	d, err := a.Keys.Derived(x.r.Context(), x.cred, keyName+id)
	if errors.Is(err, sandbox.NotFound) {
		err = noSandbox(x)
	}
	return d, err
}

func noSandbox(x *exchange) error {
	return sandbox.Errorf(sandbox.NotFound, "Sandbox '%.64s' not found", x.r.PathValue("sandbox"))
}

// list shows what runs, with one look at the threads of each user.
func (a *adapter) list(x *exchange) error {
	all, err := a.Keys.AllDerived(x.r.Context(), x.cred, keyName)
	if err != nil {
		return err
	}
	users := map[string]map[string]*sandbox.Info{} // by user, by thread
	items := []provisioned{}
	for _, d := range all {
		if users[d.User] == nil {
			if users[d.User], err = x.running(d.User); err != nil {
				return err
			}
		}
		if s := users[d.User][d.Thread]; s != nil {
			items = append(items, x.shown(d, s))
		}
	}
	inprocess.Write(x.w, http.StatusOK, map[string]any{"sandboxes": items, "count": len(items)})
	return nil
}

// running returns the sandboxes of a user that run, by thread.
func (x *exchange) running(user string) (map[string]*sandbox.Info, error) {
	found := map[string]*sandbox.Info{}
	for cursor := ""; ; {
		query := map[string]string{"state": string(sandbox.Running), "limit": "1000"}
		if cursor != "" {
			query["cursor"] = cursor
		}
		var page struct {
			Items      []threadView `json:"items"`
			NextCursor string       `json:"next_cursor"`
		}
		if err := x.into(inprocess.Request{Method: http.MethodGet, Path: "/api/threads", Query: query, OnBehalfOf: user}, &page); err != nil {
			return nil, err
		}
		for _, t := range page.Items {
			found[t.ThreadID] = t.Sandbox
		}
		if cursor = page.NextCursor; cursor == "" {
			return found, nil
		}
	}
}

// remove ends the address first, so that nothing starts the sandbox again, and then the sandbox. The thread's files stay.
func (a *adapter) remove(x *exchange) error {
	gone := map[string]any{"ok": true, "sandbox_id": x.r.PathValue("sandbox")}
	d, err := a.derived(x)
	if errors.Is(err, sandbox.NotFound) {
		inprocess.Write(x.w, http.StatusOK, gone)
		return nil
	}
	if err == nil {
		err = a.Keys.ForgetDerived(x.r.Context(), x.cred, d.Name)
	}
	if err != nil && !errors.Is(err, sandbox.NotFound) {
		return err
	}
	err = x.do(inprocess.Request{Method: http.MethodDelete, Path: "/api/threads/" + d.Thread + "/sandbox", OnBehalfOf: d.User})
	var e *inprocess.Refusal
	if err != nil && (!errors.As(err, &e) || e.Status != http.StatusNotFound) {
		return err
	}
	inprocess.Write(x.w, http.StatusOK, gone)
	return nil
}
