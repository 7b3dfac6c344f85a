package skerry

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Thread is one thread of the caller: its sandbox, its files and its tools.
type Thread struct {
	ID          string
	ActiveTools ActiveTools
	Events      Events
	Messages    Messages
	Processes   Processes
	c           *Client
}

// Thread names a thread. It asks the server nothing.
func (c *Client) Thread(id string) *Thread {
	t := &Thread{ID: id, c: c}
	t.ActiveTools, t.Events, t.Messages, t.Processes = ActiveTools{t}, Events{t}, Messages{t}, Processes{t}
	return t
}

// path is that of a part of the thread; the parts are escaped.
func (t *Thread) path(parts ...string) string {
	var b strings.Builder
	b.WriteString("/api/threads/" + url.PathEscape(t.ID))
	for _, p := range parts {
		b.WriteString("/" + url.PathEscape(p))
	}
	return b.String()
}

func (t *Thread) call(ctx context.Context, r Request, out any) error { return t.c.Call(ctx, r, out) }

// page is a list as the API returns it.
type page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next_cursor"`
}

// get sends a request and returns its answer.
func get[T any](ctx context.Context, c *Client, r Request) (*T, error) {
	out := new(T)
	if err := c.Call(ctx, r, out); err != nil {
		return nil, err
	}
	return out, nil
}

// list gets a list with all its pages.
func list[T any](ctx context.Context, c *Client, path string, query url.Values) ([]T, error) {
	all := []T{}
	for item, err := range pages[T](ctx, c, path, query) {
		if err != nil {
			return nil, err
		}
		all = append(all, item)
	}
	return all, nil
}

// pages returns the items of a list with all its pages.
func pages[T any](ctx context.Context, c *Client, path string, query url.Values) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		q := url.Values{}
		for name, values := range query {
			q[name] = values
		}
		for {
			p, err := get[page[T]](ctx, c, Request{Method: http.MethodGet, Path: path, Query: q})
			if err != nil {
				yield(*new(T), err)
				return
			}
			for _, item := range p.Items {
				if !yield(item, nil) {
					return
				}
			}
			if p.Next == "" {
				return
			}
			q.Set("cursor", p.Next)
		}
	}
}

// ThreadFilter says which threads Threads returns. Its zero value: all.
type ThreadFilter struct {
	User     string // administrators only, unless it is the caller; "*": all of the tenant
	Labels   map[string]string
	State    string // of the sandbox
	Template string // of the sandbox
	Text     string // in the id, the user or a value of the labels, whatever its case
	// ActiveAfter and ActiveBefore bound the last activity; zero: they do not.
	ActiveAfter, ActiveBefore time.Time
	// Latest sorts by the last activity, the latest first, instead of by id. Threads of all users are sorted so.
	Latest bool
	// Largest sorts by the size of the files when they were last measured, the largest first, and leaves out threads that were
	// never measured.
	Largest bool
	// MinDiskMiB is the least size of the files when they were last measured; 0: any.
	MinDiskMiB int64
}

// Threads returns threads, the caller's unless the filter has another user.
func (c *Client) Threads(ctx context.Context, f ThreadFilter) iter.Seq2[ThreadInfo, error] {
	q := url.Values{}
	for k, v := range f.Labels {
		q.Add("label", k+"="+v)
	}
	set(q, "user", f.User)
	set(q, "state", f.State)
	set(q, "template", f.Template)
	set(q, "q", f.Text)
	for name, at := range map[string]time.Time{"active_after": f.ActiveAfter, "active_before": f.ActiveBefore} {
		if !at.IsZero() {
			q.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	switch {
	case f.Largest:
		q.Set("sort", "disk_bytes")
	case f.Latest:
		q.Set("sort", "last_active_at")
	}
	if f.MinDiskMiB != 0 {
		q.Set("min_disk_mib", strconv.FormatInt(f.MinDiskMiB, 10))
	}
	return pages[ThreadInfo](ctx, c, "/api/threads", q)
}

// set sets what is not empty.
func set(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

func setInt(q url.Values, name string, value int) {
	if value != 0 {
		q.Set(name, strconv.Itoa(value))
	}
}

// Templates lists the kinds of sandbox that can be asked for.
func (c *Client) Templates(ctx context.Context) ([]Template, error) {
	return list[Template](ctx, c, "/api/templates", nil)
}

// Acquire returns the thread's sandbox and starts it when there is none. Many callers at once get the same one. State is "starting" when
// it takes longer than WaitSeconds.
func (t *Thread) Acquire(ctx context.Context, o AcquireOptions) (*Sandbox, error) {
	return t.sandbox(ctx, Request{Method: http.MethodPut, Path: t.path("sandbox"), Body: o})
}

func (t *Thread) sandbox(ctx context.Context, r Request) (*Sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, t.c.o.Wait)
	defer cancel()
	a, err := get[struct {
		Sandbox Sandbox `json:"sandbox"`
	}](ctx, t.c, r)
	if err != nil {
		return nil, err
	}
	return &a.Sandbox, nil
}

// Info is what the server knows of the thread.
func (t *Thread) Info(ctx context.Context) (*ThreadInfo, error) {
	return get[ThreadInfo](ctx, t.c, Request{Method: http.MethodGet, Path: t.path()})
}

// Pause stops the sandbox's processes until Resume or the next exec.
func (t *Thread) Pause(ctx context.Context) (*Sandbox, error) { return t.change(ctx, "pause") }

// Resume goes on after Pause or Hibernate.
func (t *Thread) Resume(ctx context.Context) (*Sandbox, error) { return t.change(ctx, "resume") }

// Hibernate ends the sandbox and keeps its files and what it was: the next exec starts it again.
func (t *Thread) Hibernate(ctx context.Context) (*Sandbox, error) { return t.change(ctx, "hibernate") }

func (t *Thread) change(ctx context.Context, verb string) (*Sandbox, error) {
	return t.sandbox(ctx, Request{Method: http.MethodPost, Path: t.path("sandbox", verb)})
}

// Release ends the sandbox; the files stay.
func (t *Thread) Release(ctx context.Context) error {
	return t.call(ctx, Request{Method: http.MethodDelete, Path: t.path("sandbox")}, nil)
}

// Delete ends the sandbox and deletes the files.
func (t *Thread) Delete(ctx context.Context) error {
	return t.call(ctx, Request{Method: http.MethodDelete, Path: t.path()}, nil)
}
