package pod

import (
	"context"
	"fmt"
	"sync"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/sidecar/tree"
	"github.com/skerry-sandbox/skerry/internal/sidecar/wire"
)

// maxState bounds the name of what both sides have.
const maxState = 64

// pull tells the server what changed in writable trees since it last had all of it, and sends what it asks for.
func (p *sidecar) pull(ctx context.Context, s *wire.Stream, ask *wire.Pull) error {
	since := string(ask.GetSince())
	full := since == "" || since != p.known
	limits := tree.Limits{Entries: int(min(ask.GetMaxEntries(), tree.MaxEntries)), Bytes: ask.GetMaxBytes(), FileBytes: ask.GetMaxFileBytes(), Names: tree.MaxNames}
	var looks []*look
	defer func() {
		for _, l := range looks {
			l.t.Close()
		}
	}()
	for _, target := range ask.GetTargets() {
		l, err := p.look(ctx, target, limits, full)
		if err != nil {
			return kindOf(err)
		}
		looks = append(looks, l)
	}
	told := number(looks)
	if told == 0 && !full {
		for _, l := range looks {
			l.m.list = l.now // the same, by newer stamps
		}
		return sendChanges(s, looks, full)
	}
	end, err := converse(ctx, s, looks, told, full, limits.FileBytes)
	if err != nil {
		return kindOf(err)
	}
	if n := len(end.GetState()); n == 0 || n > maxState {
		return fmt.Errorf("a state's name of %d bytes", n)
	}
	for _, l := range looks {
		l.m.list = l.settled()
	}
	p.known = string(end.GetState())
	return s.Send(&wire.Outcome{State: end.GetState()})
}

// converse reports the changes and sends the ones that the server wants. It reads the server's messages
// meanwhile: after the server aborts, it would not read what is sent.
func converse(ctx context.Context, s *wire.Stream, looks []*look, told int, full bool, limit int64) (*wire.Outcome, error) {
	var end wire.Outcome
	wanted, ended := make(chan []int, 1), make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		numbers, err := wire.ReceiveWanted(s, told)
		if err == nil {
			wanted <- numbers
			err = s.Await(&end)
		}
		if err == nil {
			err = end.GetFailure().Err()
		}
		if err != nil {
			s.Close()
		}
		ended <- err
	})
	err := sendChanges(s, looks, full)
	if err == nil {
		select {
		case numbers := <-wanted:
			err = sendAll(ctx, s, looks, numbers, limit)
		case err = <-ended:
			return nil, err
		}
	}
	if err != nil {
		// The server waits for it, and does not say anything any more.
		_ = s.Send(&wire.Outcome{Failure: wire.Fail(err)})
		s.Close()
		wg.Wait()
		return nil, err
	}
	return &end, <-ended
}

func sendAll(ctx context.Context, s *wire.Stream, looks []*look, numbers []int, limit int64) error {
	for _, n := range numbers {
		if err := sendOne(ctx, s, looks, n, limit); err != nil {
			return err
		}
	}
	return nil
}

// look is a tree as it is now, and how that differs from what the server has.
type look struct {
	m       *mount
	t       *tree.Tree
	now     tree.List
	changes []tree.Change // what the server is told, in order
	first   int           // the number of the first of them
	gone    map[string]bool
}

func (p *sidecar) look(ctx context.Context, target string, limits tree.Limits, full bool) (*look, error) {
	m, err := p.mount(target)
	if err != nil {
		return nil, err
	}
	if !m.Writable {
		return nil, sandbox.Errorf(sandbox.Invalid, "%s is read-only: nothing in it can have changed", target)
	}
	if !p.filled(m) {
		return nil, sandbox.Errorf(sandbox.Conflict, "%s was never pushed as a whole: what is missing in it says nothing", target)
	}
	t, err := tree.Open(m.Folder, m.only())
	if err != nil {
		return nil, err
	}
	l := &look{m: m, t: t, gone: map[string]bool{}}
	if l.now, err = t.List(ctx, "", limits); err == nil {
		err = l.compare(ctx, &p.digests, full, limits.FileBytes)
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	return l, nil
}

// compare finds the changes. Files that may have changed without a trace in size and mode are read.
func (l *look) compare(ctx context.Context, digests *tree.Digests, full bool, limit int64) error {
	var failed error
	l.changes = tree.Diff(l.m.list, l.now, func(old, now *tree.Entry) bool {
		if failed != nil || old.Kind != now.Kind || old.Kind != tree.File {
			return tree.Differs(old, now)
		}
		if old.Stamp == now.Stamp && !old.Racy {
			now.Digest = old.Digest
			return tree.Differs(old, now)
		}
		if old.Size != now.Size || !old.Digest.Known() {
			return true
		}
		one := tree.List{*now}
		failed = digests.Fill(ctx, l.t, one, limit)
		*now = one[0]
		return !now.Digest.Known() || tree.Differs(old, now) || old.Mtime != now.Mtime
	})
	if failed != nil || !full {
		return failed
	}
	if err := digests.Fill(ctx, l.t, l.now, limit); err != nil {
		return err
	}
	l.changes = tree.Diff(nil, l.now, tree.Differs)
	return nil
}

// number numbers all changes, and returns how many there are.
func number(looks []*look) int {
	total := 0
	for _, l := range looks {
		l.first = total
		total += len(l.changes)
	}
	return total
}

// sendChanges sends all changes.
func sendChanges(s *wire.Stream, looks []*look, full bool) error {
	i, j := 0, 0
	return wire.SendEntries(s, full, func() *wire.Entry {
		for i < len(looks) && j == len(looks[i].changes) {
			i, j = i+1, 0
		}
		if i == len(looks) {
			return nil
		}
		c := looks[i].changes[j]
		j++
		return wire.FromTree(i, c.Path, c.New)
	})
}

// sendOne sends the content of the file with a number, and notes what was sent.
func sendOne(ctx context.Context, s *wire.Stream, looks []*look, number int, limit int64) error {
	i := len(looks) - 1
	for looks[i].first > number {
		i--
	}
	l := looks[i]
	e := l.changes[number-l.first].New
	if e == nil || e.Kind != tree.File {
		return sandbox.Errorf(sandbox.Invalid, "number %d is no file", number)
	}
	sent, ok, err := wire.SendFile(ctx, s, l.t, e.Path, limit)
	if err != nil {
		return err
	}
	if sent.Kind == 0 {
		l.gone[e.Path] = true
		return nil
	}
	if !ok {
		sent.Stamp, sent.Digest = tree.Stamp{}, tree.Digest{} // the next pull sends it again
	}
	*e = sent
	return nil
}

// settled is what the server has now.
func (l *look) settled() tree.List {
	if len(l.gone) == 0 {
		return l.now
	}
	out := make(tree.List, 0, len(l.now))
	for _, e := range l.now {
		if !l.gone[e.Path] {
			out = append(out, e)
		}
	}
	return out
}
