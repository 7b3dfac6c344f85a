package drift

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/audit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/store"
)

// Bounds of what is remembered of one tool.
const (
	maxText   = 8 << 10 // of one field, for the diff
	maxDiff   = 600     // bytes
	maxHashes = 16      // that are accepted, and that were told
)

// checkTries is how often a listing is compared when other servers change what is remembered meanwhile.
const checkTries = 5

type auditLog interface {
	AppendSync(ctx context.Context, r audit.Record) (audit.Record, error)
}

// Options are what a Service works with. All are needed.
type Options struct {
	Store *store.Store
	Audit auditLog
	// Tenant gets the records about connections that belong to no user.
	Tenant string
	Log    *slog.Logger
}

// Service remembers tools. All methods may be called at the same time.
type Service struct {
	o  Options
	mu sync.Mutex // held while a listing is compared: one at a time is enough, they are rare
}

// New makes a Service.
func New(o Options) *Service { return &Service{o: o} }

func pinned(l sandbox.ToolListing) store.PinnedServer {
	p := store.PinnedServer{Server: l.Server, Definition: l.Definition, Since: time.Now().UTC()}
	if l.Own {
		p.Tenant, p.User = l.Owner.Tenant, l.Owner.User
	}
	return p
}

// Check compares a listing with what is remembered, remembers it, and records what is new. It returns the tools that
// are quarantined. An error is that this is not known, or cannot be recorded, now.
func (s *Service) Check(ctx context.Context, l sandbox.ToolListing) (quarantined []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range checkTries {
		if quarantined, err = s.check(ctx, l); !errors.Is(err, sandbox.Conflict) {
			break
		}
	}
	return quarantined, err
}

func (s *Service) check(ctx context.Context, l sandbox.ToolListing) (quarantined []string, err error) {
	p := pinned(l)
	known, pins, seen, err := s.o.Store.ToolPins(ctx, p)
	if err != nil {
		return nil, err
	}
	if !seen || known.Definition != l.Definition {
		return nil, s.first(ctx, p, l, pins, seen)
	}
	var put []store.ToolPin
	listed := map[string]bool{}
	for _, t := range l.Tools {
		listed[t.Name] = true
		pin, had := pins[t.Name]
		pin, what := next(pin, had, t, l.Quarantine)
		if what != "" {
			if err := s.record(ctx, l, what, t.Name, pin); err != nil {
				return nil, err
			}
		}
		if pin.Quarantined {
			quarantined = append(quarantined, t.Name)
		}
		if !had || changed(pins[t.Name], pin) {
			put = append(put, pin)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pins)) {
		if pin := pins[name]; !listed[name] && !pin.Gone {
			pin.Gone, pin.SeenAt = true, time.Now().UTC()
			if err := s.record(ctx, l, sandbox.DriftRemoved, name, pin); err != nil {
				return nil, err
			}
			put = append(put, pin)
		}
	}
	if len(put) == 0 {
		return quarantined, nil
	}
	return quarantined, s.o.Store.PutToolPins(ctx, known, put, nil)
}

// first takes a listing as it is: of a server that was never seen, or that was defined anew.
func (s *Service) first(ctx context.Context, p store.PinnedServer, l sandbox.ToolListing, had map[string]store.ToolPin, again bool) error {
	pins := make([]store.ToolPin, 0, len(l.Tools))
	now := time.Now().UTC()
	for _, t := range l.Tools {
		fields := fieldsOf(t)
		hash := hashOf(fields)
		pins = append(pins, had[t.Name].Becomes(store.ToolPin{Tool: t.Name, Accepted: []string{hash}, Fields: fields, Now: hash, SeenAt: now}))
		delete(had, t.Name)
	}
	outcome, detail := "pinned", fmt.Sprintf("%d tools, seen for the first time", len(pins))
	if again {
		outcome, detail = "repinned", fmt.Sprintf("%d tools, because the server is defined anew", len(pins))
	}
	if err := s.append(ctx, l.Owner, audit.Record{Subject: l.Server, Outcome: outcome, Detail: detail}); err != nil {
		return err
	}
	return s.o.Store.PutToolPins(ctx, p, pins, slices.Sorted(maps.Keys(had)))
}

// next is what is remembered of a tool after it was listed so. what is told of it, "" when nothing is.
func next(pin store.ToolPin, had bool, t sandbox.Tool, quarantine bool) (out store.ToolPin, what string) {
	fields := fieldsOf(t)
	hash := hashOf(fields)
	back := pin.Gone
	out = pin
	out.Tool, out.Gone, out.Now = t.Name, false, hash
	if slices.Contains(pin.Accepted, hash) {
		out.NowFields, out.Changes, out.Quarantined = nil, nil, false
		if back {
			what = "returned"
		}
	} else {
		out.NowFields, out.Changes, out.Quarantined = fields, compare(pin.Fields, fields), quarantine
		if !slices.Contains(pin.Told, hash) || back {
			out.Told = last(append(slices.Clone(pin.Told), hash))
			what = sandbox.DriftChanged
			if len(pin.Accepted) == 0 {
				what = sandbox.DriftAdded
			}
		}
	}
	if !had || changed(pin, out) {
		out.SeenAt = time.Now().UTC()
	}
	return out, what
}

func last(hashes []string) []string { return hashes[max(0, len(hashes)-maxHashes):] }

func changed(a, b store.ToolPin) bool {
	return a.Now != b.Now || a.Quarantined != b.Quarantined || a.Gone != b.Gone || len(a.Accepted) != len(b.Accepted) || !slices.Equal(a.Told, b.Told)
}

// fieldsOf returns the parts of a tool that are watched: what a model reads, and what a policy goes by.
func fieldsOf(t sandbox.Tool) map[string]store.PinField {
	all := map[string]store.PinField{}
	for name, text := range map[string]string{
		"title": t.Title, "description": t.Description, "input": canonical(t.Input), "output": canonical(t.Output), "annotations": canonical(t.Annotations),
	} {
		if text == "" {
			continue
		}
		sum := sha256.Sum256([]byte(text))
		all[name] = store.PinField{Hash: hex.EncodeToString(sum[:]), Text: strings.ToValidUTF8(text[:min(len(text), maxText)], "")}
	}
	return all
}

// canonical writes JSON with sorted members: servers whose language has no order of its own say the same in another
// one each time.
func canonical(raw json.RawMessage) string {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if len(raw) == 0 || d.Decode(&v) != nil {
		return string(raw)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return string(raw)
	}
	return string(text)
}

func hashOf(fields map[string]store.PinField) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		fmt.Fprintf(h, "%s %s\n", name, fields[name].Hash)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// compare tells which fields differ, and how.
func compare(before, after map[string]store.PinField) []sandbox.ToolChange {
	list := []sandbox.ToolChange{}
	for _, name := range []string{"title", "description", "input", "output", "annotations"} {
		b, a := before[name], after[name]
		if b.Hash != a.Hash {
			list = append(list, sandbox.ToolChange{Field: name, Before: b.Hash, After: a.Hash, Diff: diff(b.Text, a.Text)})
		}
	}
	return list
}

// diff shows where two texts part: what is removed after -, what is new after +, with a little of what is common before it.
func diff(before, after string) string {
	from := 0
	for from < len(before) && from < len(after) && before[from] == after[from] {
		from++
	}
	end := 0
	for end < len(before)-from && end < len(after)-from && before[len(before)-1-end] == after[len(after)-1-end] {
		end++
	}
	lead := max(0, from-20)
	const each = (maxDiff - 20) / 2
	shown := func(text string) string {
		part := fmt.Sprintf("%+q", strings.ToValidUTF8(text[lead:len(text)-end], "?"))
		if len(part) > each {
			part = part[:each] + "…"
		}
		return part
	}
	if len(before) == len(after) && from == len(before) {
		return fmt.Sprintf("beyond the first %d bytes", maxText)
	}
	return "- " + shown(before) + "\n+ " + shown(after)
}

// record writes what happened to one tool.
func (s *Service) record(ctx context.Context, l sandbox.ToolListing, what, tool string, pin store.ToolPin) error {
	r := audit.Record{Subject: l.Server + "/" + tool, Outcome: what}
	var fields []string
	for _, c := range pin.Changes {
		fields = append(fields, c.Field)
	}
	if r.Detail = strings.Join(fields, ", "); pin.Quarantined {
		r.Detail += " (quarantined)"
	}
	if len(pin.Changes) > 0 {
		r.Args, r.ArgsHash = audit.Args(map[string]any{"changes": pin.Changes, "hash": pin.Now})
	}
	s.o.Log.Warn("MCP server: a tool is not as it was", "server", l.Server, "tool", tool, "what", what, "fields", strings.Join(fields, ","), "quarantined", pin.Quarantined)
	return s.append(ctx, l.Owner, r)
}

func (s *Service) append(ctx context.Context, o sandbox.Owner, r audit.Record) error {
	r.Tenant, r.User, r.Action, r.Phase = cmp.Or(o.Tenant, s.o.Tenant), o.User, audit.ActionToolDrift, audit.PhaseResult
	_, err := s.o.Audit.AppendSync(ctx, r)
	return err
}

// administers reports whether a caller decides about a server: its own, a tool pack of the tenant, or one of all tenants.
func administers(c sandbox.Caller, p store.PinnedServer) bool {
	switch {
	case p.Tenant == "":
		return c.Operator
	case p.User == "":
		return p.Tenant == c.Tenant && c.Admin()
	}
	return p.Tenant == c.Tenant && p.User == c.User
}

// List returns the tools that are not as they were first seen, or approved: of the caller's own servers, for an
// administrator of tool packs of the tenant, and for an operator of servers of the configuration. server "" is for all.
func (s *Service) List(ctx context.Context, c sandbox.Caller, server string) ([]sandbox.ToolDrift, error) {
	servers, err := s.o.Store.PinnedServers(ctx)
	if err != nil {
		return nil, err
	}
	list := []sandbox.ToolDrift{}
	for _, p := range servers {
		if server != "" && p.Server != server || !administers(c, p) {
			continue
		}
		_, pins, _, err := s.o.Store.ToolPins(ctx, p)
		if err != nil {
			return nil, err
		}
		for _, pin := range pins {
			if d, is := drift(p.Server, pin); is {
				list = append(list, d)
			}
		}
	}
	slices.SortFunc(list, func(a, b sandbox.ToolDrift) int {
		return cmp.Or(strings.Compare(a.Server, b.Server), strings.Compare(a.Tool, b.Tool))
	})
	return list, nil
}

func drift(server string, pin store.ToolPin) (sandbox.ToolDrift, bool) {
	d := sandbox.ToolDrift{Server: server, Tool: pin.Tool, Quarantined: pin.Quarantined, Hash: pin.Now, Changes: pin.Changes, SeenAt: pin.SeenAt}
	if d.Changes == nil {
		d.Changes = []sandbox.ToolChange{}
	}
	switch {
	case pin.Gone:
		d.State, d.Quarantined = sandbox.DriftRemoved, false
	case slices.Contains(pin.Accepted, pin.Now):
		return d, false
	case len(pin.Accepted) == 0:
		d.State = sandbox.DriftAdded
	default:
		d.State = sandbox.DriftChanged
	}
	return d, true
}

// Approve takes tools of a server as they are now: one, or with tool "" all; a removed one is forgotten. hash, when
// it is not "", is what was looked at: Conflict when the tool is another by now. NotFound when there is nothing to approve.
func (s *Service) Approve(ctx context.Context, c sandbox.Caller, server, tool, hash string) (approved []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	candidates := []store.PinnedServer{{Server: server, Tenant: c.Tenant, User: c.User}}
	if c.Admin() { // a tool pack of the tenant
		candidates = append(candidates, store.PinnedServer{Server: server, Tenant: c.Tenant})
	}
	if c.Operator {
		candidates = append(candidates, store.PinnedServer{Server: server})
	}
	for _, p := range candidates {
		known, pins, ok, err := s.o.Store.ToolPins(ctx, p)
		if err != nil {
			return approved, err
		}
		if !ok {
			continue
		}
		list, err := s.approve(ctx, c, known, pins, tool, hash)
		if approved = append(approved, list...); err != nil {
			return approved, err
		}
	}
	if len(approved) == 0 {
		return nil, sandbox.Errorf(sandbox.NotFound, "no tool of the MCP server %.80q waits to be approved%s", server, ofTool(tool))
	}
	return approved, nil
}

func ofTool(tool string) string {
	if tool == "" {
		return ""
	}
	return fmt.Sprintf(" by the name %.140q", tool)
}

func (s *Service) approve(ctx context.Context, c sandbox.Caller, p store.PinnedServer, pins map[string]store.ToolPin, tool, hash string) (approved []string, err error) {
	var put []store.ToolPin
	var forget []string
	for _, name := range slices.Sorted(maps.Keys(pins)) {
		pin := pins[name]
		d, is := drift(p.Server, pin)
		if !is || tool != "" && name != tool {
			continue
		}
		if hash != "" && hash != pin.Now {
			return nil, sandbox.Errorf(sandbox.Conflict, "the tool %q has changed again: it has the hash %s now; look at it once more", name, pin.Now)
		}
		if err := s.append(ctx, c.Owner, audit.Record{
			Subject: p.Server + "/" + name, Outcome: "approved", Detail: d.State + " " + pin.Now,
		}.By(c)); err != nil {
			return nil, err
		}
		approved = append(approved, name)
		if pin.Gone {
			forget = append(forget, name)
			continue
		}
		pin.Accepted, pin.Fields = last(append(pin.Accepted, pin.Now)), pin.NowFields
		pin.NowFields, pin.Changes, pin.Quarantined = nil, nil, false
		put = append(put, pin)
	}
	if len(approved) == 0 {
		return nil, nil
	}
	return approved, s.o.Store.PutToolPins(ctx, p, put, forget)
}
