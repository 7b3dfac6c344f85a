package sidecar

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"sync"

	"github.com/hashicorp/yamux"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar/pod"
	"github.com/skerry-sandbox/skerry/internal/sidecar/tree"
	"github.com/skerry-sandbox/skerry/internal/sidecar/wire"
)

// pushTries is how often a push begins again because a file changed while it was sent.
const pushTries = 3

// copied is what a mount's Source and the sandbox have in common.
type copied struct {
	// pushed are the parts of a read-only mount that were not changed at the sandbox since, by path and digest of
	// their lists.
	pushed map[string]tree.Digest
	// Of a writable mount, what a full pull counted and later ones changed.
	entries int
	bytes   int64
}

// Push is that of driver.Remote. It returns when the sandbox has all of it. A path that no mount has is Invalid. What
// was not changed costs a stat of each file at the server, and no byte on the way where the mount is read-only.
func (c *Conn) Push(ctx context.Context, paths ...string) error {
	release, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer release()
	for _, p := range paths {
		m, rest, err := c.find(p)
		if err != nil {
			return err
		}
		for try := 1; ; try++ {
			err = c.pushOne(ctx, m, rest)
			if !errors.Is(err, errChanged) || try == pushTries {
				break
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// errChanged says that a file changed between two looks at it. It is no Conflict: that is how an attachment ends.
var errChanged = sandbox.Errorf(sandbox.Unavailable, "a file changed while it was copied")

func (c *Conn) pushOne(ctx context.Context, m sandbox.Mount, rest string) error {
	t, err := tree.Open(m.Source, pod.Only(m.Target))
	if err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "the files of %s cannot be read", m.Target)
	}
	defer t.Close()
	limits := tree.Limits{Entries: tree.MaxEntries, Bytes: math.MaxInt64, FileBytes: math.MaxInt64, Names: tree.MaxNames}
	list, err := t.List(ctx, rest, limits)
	if err == nil {
		err = c.o.Digests.Fill(ctx, t, list, math.MaxInt64)
	}
	if err != nil {
		return ofSource(err, m.Target)
	}
	for _, e := range list {
		if e.Kind == tree.File && !e.Digest.Known() {
			return errChanged
		}
	}
	sum := listSum(list)
	known := c.copied[m.Target]
	if m.ReadOnly {
		if got, ok := known.pushed[rest]; ok && got == sum {
			return nil
		}
		for p := range known.pushed {
			if tree.Under(p, rest) || tree.Under(rest, p) {
				delete(known.pushed, p)
			}
		}
	}
	parents, err := parentsOf(t, rest, len(list) > 0)
	if err != nil {
		return ofSource(err, m.Target)
	}
	err = c.call(ctx, func(ctx context.Context, session *yamux.Session) error {
		return send(ctx, session, t, &wire.Push{Target: m.Target, Path: []byte(rest), Parents: parents}, list)
	})
	if err != nil || !m.ReadOnly {
		return err
	}
	if known.pushed == nil {
		known.pushed = map[string]tree.Digest{}
	}
	known.pushed[rest] = sum
	c.copied[m.Target] = known
	return nil
}

// ofSource maps errors of the server's own files to their kinds.
func ofSource(err error, target string) error {
	switch {
	case errors.Is(err, tree.ErrTooMuch):
		return sandbox.Wrap(sandbox.QuotaExceeded, err, "%s: %s", target, err.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return sandbox.Wrap(sandbox.Timeout, err, "%s: copying took too long", target)
	}
	return sandbox.Wrap(sandbox.Internal, err, "%s: the server's files cannot be used", target)
}

// listSum is a digest of all that a reader would see.
func listSum(list tree.List) tree.Digest {
	h := sha256.New()
	var buf []byte
	for _, e := range list {
		buf = buf[:0]
		buf = binary.AppendUvarint(buf, uint64(len(e.Path)))
		buf = append(buf, e.Path...)
		buf = append(buf, byte(e.Kind))
		buf = binary.AppendUvarint(buf, uint64(e.Mode))
		buf = binary.AppendUvarint(buf, uint64(len(e.Target)))
		buf = append(buf, e.Target...)
		buf = append(buf, e.Digest[:]...)
		h.Write(buf)
	}
	return tree.Digest(h.Sum(nil))
}

// parentsOf returns the folders above a path, which the sandbox may not have yet.
func parentsOf(t *tree.Tree, rest string, there bool) ([]*wire.Entry, error) {
	var out []*wire.Entry
	if !there {
		return nil, nil
	}
	for i, r := range rest {
		if r != '/' {
			continue
		}
		e, ok, err := t.Stat(rest[:i])
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, fmt.Errorf("%.200q: %w", rest[:i], fs.ErrNotExist)
		}
		out = append(out, wire.FromTree(0, e.Path, &e))
	}
	return out, nil
}

// send does one push.
func send(ctx context.Context, session *yamux.Session, t *tree.Tree, ask *wire.Push, list tree.List) error {
	s, err := request(ctx, session, &wire.Request{Do: &wire.Request_Push{Push: ask}})
	if err != nil {
		return err
	}
	defer s.Close()
	i := 0
	err = wire.SendEntries(s, true, func() *wire.Entry {
		if i == len(list) {
			return nil
		}
		i++
		return wire.FromTree(0, list[i-1].Path, &list[i-1])
	})
	if err != nil {
		return err
	}
	wanted, err := wire.ReceiveWanted(s, len(list))
	if err != nil {
		return err
	}
	// The sidecar may fail while it is sent to: it has no space left, say.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	end := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		err := outcome(s)
		end <- err
		if err != nil {
			s.Close() // a sender does not wait for a peer that stopped reading
		}
	})
	defer wg.Wait()
	defer s.Close()
	for _, n := range wanted {
		if err := sendOne(ctx, s, t, list[n]); err != nil {
			select {
			case failed := <-end:
				return failed
			default:
				return err
			}
		}
	}
	return <-end
}

func sendOne(ctx context.Context, s *wire.Stream, t *tree.Tree, e tree.Entry) error {
	if e.Kind != tree.File {
		return fmt.Errorf("the sidecar wants %.200q, which is no file", e.Path)
	}
	sent, _, err := wire.SendFile(ctx, s, t, e.Path, e.Size)
	if err == nil && sent.Digest != e.Digest {
		return errChanged
	}
	return err
}
