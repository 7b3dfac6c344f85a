package instance

import (
	"context"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/client"
	"github.com/skerry-sandbox/skerry/internal/sandboxapi/link"
	sandboxv1 "github.com/skerry-sandbox/skerry/internal/sandboxapi/v1"
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
	leaves    bool     // sandboxd can leave processes
}

// Hello waits until sandboxd has dialled and answers.
func (c *Conn) Hello(ctx context.Context) error {
	st, err := c.Client.Status(ctx)
	if err != nil {
		return sandbox.Wrap(sandbox.SandboxLost, err, "the sandbox started but does not answer")
	}
	c.Learn(st)
	return nil
}

// Learn notes what sandboxd says that it can do.
func (c *Conn) Learn(st *sandboxv1.StatusResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.languages, c.leaves = st.GetLanguages(), st.GetLeavesProcesses()
}

// LeavesProcesses reports whether sandboxd can leave processes that outlive their exec. One older than the server cannot.
func (c *Conn) LeavesProcesses() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leaves
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
