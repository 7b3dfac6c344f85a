package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// PinnedServer is an MCP server whose tools are remembered. Tenant and User are empty for one of the administrator's
// file.
type PinnedServer struct {
	Tenant     string    `json:"tenant,omitempty"`
	User       string    `json:"user,omitempty"`
	Server     string    `json:"server"`
	Definition string    `json:"definition"`
	Since      time.Time `json:"since"`
}

// id names the hash of the server's tools: names may have any characters.
func (p PinnedServer) id() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", p.Tenant, p.User, p.Server))
	return hex.EncodeToString(sum[:16])
}

// ToolPin is what is remembered of one tool.
type ToolPin struct {
	Tool        string               `json:"tool"`
	Accepted    []string             `json:"accepted,omitempty"` // hashes of what was first seen, or approved; the newest last
	Told        []string             `json:"told,omitempty"`     // hashes that were recorded; the newest last
	Fields      map[string]PinField  `json:"fields"`             // of the newest that was accepted; of an added one none
	Now         string               `json:"now"`                // hash of what was listed last
	NowFields   map[string]PinField  `json:"now_fields,omitempty"`
	Changes     []sandbox.ToolChange `json:"changes,omitempty"`
	Quarantined bool                 `json:"quarantined,omitempty"`
	Gone        bool                 `json:"gone,omitempty"`
	SeenAt      time.Time            `json:"seen_at"`

	was string // its text when it was read; "" when there was none
}

// Becomes returns next as what is remembered of the tool from now on.
func (p ToolPin) Becomes(next ToolPin) ToolPin {
	next.was = p.was
	return next
}

// PinField is one part of a tool: the hash of the whole, and its beginning.
type PinField struct {
	Hash string `json:"hash"`
	Text string `json:"text,omitempty"`
}

// pinsAtOnce bounds the writes of one server's tools at once: their fsyncs are made together.
const pinsAtOnce = 32

// PinnedServers returns all servers whose tools are remembered.
func (s *Store) PinnedServers(ctx context.Context) ([]PinnedServer, error) {
	ctx, cancel := deadline(ctx)
	defer cancel()
	texts, err := s.rdb.HVals(ctx, pinnedServersKey).Result()
	if err != nil {
		return nil, failure(err)
	}
	list := make([]PinnedServer, len(texts))
	for i, text := range texts {
		if err := json.Unmarshal([]byte(text), &list[i]); err != nil {
			return nil, sandbox.Wrap(sandbox.Internal, err, "the record of an MCP server cannot be read")
		}
	}
	return list, nil
}

// ToolPins returns what is remembered of a server, by the name of the tool. ok is false when it was never seen; pins
// are then what a server that ended too early has left.
func (s *Store) ToolPins(ctx context.Context, p PinnedServer) (known PinnedServer, pins map[string]ToolPin, ok bool, err error) {
	ctx, cancel := deadline(ctx)
	defer cancel()
	text, err := s.rdb.HGet(ctx, pinnedServersKey, p.id()).Bytes()
	if err != nil && !isNil(err) {
		return known, nil, false, failure(err)
	}
	if ok = err == nil; ok {
		if err := json.Unmarshal(text, &known); err != nil {
			return known, nil, false, sandbox.Wrap(sandbox.Internal, err, "the record of an MCP server cannot be read")
		}
	}
	texts, err := s.rdb.HVals(ctx, toolPinsKey(p)).Result()
	if err != nil {
		return known, nil, false, failure(err)
	}
	pins = map[string]ToolPin{}
	for _, text := range texts {
		var pin ToolPin
		if err := json.Unmarshal([]byte(text), &pin); err != nil {
			return known, nil, false, sandbox.Wrap(sandbox.Internal, err, "the record of a tool cannot be read")
		}
		pin.was = text
		pins[pin.Tool] = pin
	}
	return known, pins, ok, nil
}

// PutToolPins remembers tools of a server as they became since they were read, and forgets those of forget. Conflict:
// another server was faster with one of them. It is durable. The server's own record is written last: a crash before
// it leaves a server that is seen for the first time again.
func (s *Store) PutToolPins(ctx context.Context, p PinnedServer, pins []ToolPin, forget []string) error {
	var wg sync.WaitGroup
	places := make(chan struct{}, pinsAtOnce)
	errs := make([]error, len(pins)+len(forget))
	each := func(i int, do func() error) {
		places <- struct{}{}
		wg.Go(func() {
			errs[i] = do()
			<-places
		})
	}
	for i, pin := range pins {
		each(i, func() error {
			err := s.replace(ctx, place{key: toolPinsKey(p), field: pin.Tool}, pin.was, pin)
			if errors.Is(err, errOvertaken) {
				err = sandbox.Wrap(sandbox.Conflict, err, "another server changed what is remembered of the tool %.140q; try again", pin.Tool)
			}
			return err
		})
	}
	for i, tool := range forget {
		each(len(pins)+i, func() error { return s.remove(ctx, place{key: toolPinsKey(p), field: tool}) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return s.save(ctx, place{key: pinnedServersKey, field: p.id()}, p)
}
