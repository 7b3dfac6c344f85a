package instance

import (
	"context"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/client"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/link"
	"github.com/skerry-sandbox/skerry/internal/tools/bridge"
)

// Conn is how this server and a sandbox reach each other: the connection that sandboxd dials, and the socket of the
// bridge. The fields above mu do not change once the instance is ready.
type Conn struct {
	Link   *link.Listener
	Client *client.Client
	Bridge *bridge.Endpoint

	mu        sync.Mutex
	languages []string // that sandboxd found a runtime for
}

// Hello waits until sandboxd has dialled and answers.
func (c *Conn) Hello(ctx context.Context) error {
	st, err := c.Client.Status(ctx)
	if err != nil {
		return sandbox.Wrap(sandbox.SandboxLost, err, "the sandbox started but does not answer")
	}
	c.SetRuntimes(st.GetLanguages())
	return nil
}

// SetRuntimes says which languages sandboxd found a runtime for.
func (c *Conn) SetRuntimes(languages []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.languages = languages
}

// Runtimes returns the languages that sandboxd found a runtime for.
func (c *Conn) Runtimes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.languages
}

// Close closes this server's side. The sandbox goes on.
func (c *Conn) Close() error {
	if c.Link != nil {
		c.Link.Close()
	}
	if c.Bridge != nil {
		return c.Bridge.Close()
	}
	return nil
}
