package login

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// ErrNeeded is the cause of the error of a request that fails until a person has logged in.
var ErrNeeded = errors.New("a login is needed")

// pause is how long a machine's token that a server refused at once is not got anew.
const pause = 10 * time.Second

// Options say for whom a Client is. All but Hide are needed.
type Options struct {
	Server   string // its name
	URL      string // where it is, with everything put in
	Settings Settings
	Declared bool          // the configuration says something about OAuth
	Owner    sandbox.Owner // whose login it is; the zero value for a shared one
	Vault    *Vault
	Hide     func(secrets ...string) // is told what must not be in any text
	// Confined says that the server was named by a user who may not reach what this machine does: then its own address is no
	// exception, there is no proxy, and besides the public internet there is only what Within names.
	Confined bool
	Within   []netip.Prefix
}

// Client gets tokens for one owner at one server. Its methods may be called at the same time.
type Client struct {
	o      Options
	target *url.URL
	slot   *slot
	http   *http.Client
}

// New makes a client. It sends nothing yet.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.URL)
	if err != nil || !isHTTP(o.URL) {
		return nil, sandbox.Errorf(sandbox.Invalid, "url: is not an http or https URL")
	}
	if field, problem := o.Settings.Check(); field != "" {
		return nil, sandbox.Errorf(sandbox.Invalid, "oauth.%s: %s", field, problem)
	}
	if o.Settings.Grant != GrantCode {
		o.Owner = sandbox.Owner{} // the machine's own login
	}
	id := o.Settings.ClientID + " " + o.Settings.MetadataDocument + " " + o.Settings.Grant
	return &Client{o: o, target: u, slot: o.Vault.slot(o.Server, o.URL, id, o.Owner), http: newClient(u, o)}, nil
}

// Close ends the use of the client; it is called once.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
	c.slot.leave()
}

func (c *Client) hide(secrets ...string) {
	if c.o.Hide != nil {
		c.o.Hide(secrets...)
	}
}

// Sign adds to a request its token, when there is one, renewed when it has ended. used is the token. An
// error is that none can be got now.
func (c *Client) Sign(ctx context.Context, req *http.Request) (used string, err error) {
	r, err := c.slot.current()
	if err != nil {
		return "", err
	}
	if r.Access != "" && r.expired() {
		if r, err = c.renew(ctx, r.Access); errors.Is(err, errRefused) {
			return "", nil // the server will say that it wants a login
		} else if err != nil {
			return "", err
		}
	}
	if r.Access == "" {
		return "", nil
	}
	c.hide(r.Access, r.Refresh, r.Client.Secret)
	req.Header.Set("Authorization", "Bearer "+r.Access)
	return r.Access, nil
}

// Refused is told that a request, signed with used, was answered with 401 or 403. again: there is
// another token now, and the request is worth one more try; first says that this was not that one. An
// error wraps ErrNeeded when a person has to log in; with neither, the answer stands as it is.
func (c *Client) Refused(ctx context.Context, res *http.Response, used string, first bool) (again bool, err error) {
	ch := challengeOf(res)
	switch {
	case !ch.there && !c.o.Declared:
		return false, nil
	case res.StatusCode == http.StatusForbidden && (ch.code != "insufficient_scope" || len(ch.scopes) == 0):
		return false, nil
	case res.StatusCode == http.StatusForbidden:
		return c.stepUp(ctx, ch, used)
	}
	c.slot.challenged(ch)
	r, err := c.slot.current()
	if err != nil {
		return false, err
	}
	if r.Access != used && r.Access != "" && !r.expired() {
		return true, nil // another process has renewed it
	}
	switch person := c.o.Settings.Grant == GrantCode; {
	case person && (r.Refresh == "" || !first):
		return false, c.needed(nil)
	case !person && used != "" && time.Since(r.Since) < pause:
		return false, nil // a server that refuses what it asks for
	}
	_, err = c.renew(ctx, used)
	if errors.Is(err, errRefused) && c.o.Settings.Grant == GrantCode {
		return false, c.needed(nil)
	}
	return err == nil, err
}

// stepUp gets a token for scopes that the present one does not have.
func (c *Client) stepUp(ctx context.Context, ch challenge, used string) (again bool, err error) {
	r, err := c.slot.current()
	if err != nil {
		return false, err
	}
	missing := slices.DeleteFunc(slices.Clone(ch.scopes), func(s string) bool { return slices.Contains(r.Scopes, s) })
	switch {
	case used == "" && c.o.Settings.Grant == GrantCode:
		c.slot.challenged(ch)
		return false, c.needed(nil)
	case r.Access != used:
		return r.Access != "", nil
	case len(missing) == 0:
		return false, nil // it was granted, and does not help: once more would not, either
	case c.o.Settings.Grant == GrantCode:
		c.slot.challenged(ch)
		return false, c.needed(missing)
	}
	unlock, err := c.slot.lock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	n, err := c.machine(ctx, ch, r.Scopes)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(missing, func(s string) bool { return slices.Contains(n.Scopes, s) }), nil
}

// needed is the error of a request that waits for a person.
func (c *Client) needed(scopes []string) error {
	what := "wants a login"
	if len(scopes) > 0 {
		what = "wants a login with the scope " + strings.Join(scopes[:min(len(scopes), 10)], " ")
	}
	return sandbox.Wrap(sandbox.Unavailable, ErrNeeded, "the MCP server %q %s: skerry mcp login %s", c.o.Server, what, word(c.o.Server))
}

// word is a text as one word of a shell.
func word(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("-_.:@", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// renew gets a new token in the place of old. When another process has done so meanwhile, it is that one. An
// error wraps errRefused when the login is worth nothing any more; then it is gone.
func (c *Client) renew(ctx context.Context, old string) (*record, error) {
	unlock, err := c.slot.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	r, err := c.slot.current()
	if err != nil {
		return nil, err
	}
	if r.Access != old && r.Access != "" && !r.expired() {
		return r, nil
	}
	if c.o.Settings.Grant != GrantCode {
		return c.machine(ctx, c.slot.noted(), nil)
	}
	n, err := r, error(errRefused)
	if r.Refresh != "" {
		// A refresh token that was sent is gone: the caller may leave, the answer must be kept.
		n, err = c.refresh(context.WithoutCancel(ctx), r)
	}
	if errors.Is(err, errRefused) {
		ended := *r
		ended.Access, ended.Refresh = "", ""
		return nil, errors.Join(err, c.slot.put(&ended))
	}
	if err != nil {
		return nil, err
	}
	return n, c.slot.put(n)
}
