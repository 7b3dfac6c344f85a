package snapshot

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// A pack is one object with the content of many small files, or of some parts of large ones. They lie one
// behind the other, compressed together. A pack never changes, and its name is never used again.

const (
	// sendParallel is how many packs of one snapshot are under way at once, packsAtOnce those of all.
	sendParallel = 4
	packsAtOnce  = 12
	// sealedMore is what encryption and a content that cannot be compressed add to a pack.
	sealedMore = 1 << 20
)

func packName(t sandbox.Thread, id string) string { return place(t) + "/packs/" + id }

// packer makes packs of what is added, and sends them.
type packer struct {
	s     *Snapshots
	ctx   context.Context
	t     sandbox.Thread
	group *errgroup.Group
	id    string
	data  []byte
	packs map[string]int64 // made so far
	sent  atomic.Int64     // bytes
}

func (s *Snapshots) newPacker(ctx context.Context, t sandbox.Thread) *packer {
	p := &packer{s: s, t: t, packs: map[string]int64{}}
	p.group, p.ctx = errgroup.WithContext(ctx)
	p.group.SetLimit(sendParallel)
	return p
}

// add says where data will be. It fails when sending failed meanwhile.
func (p *packer) add(is sum, data []byte) (chunk, error) {
	if len(p.data)+len(data) > maxPackBytes {
		if err := p.flush(); err != nil {
			return chunk{}, err
		}
	}
	if p.id == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return chunk{}, err
		}
		p.id = id.String()
	}
	c := chunk{Sum: is, Pack: p.id, At: int64(len(p.data)), Bytes: int64(len(data))}
	p.data = append(p.data, data...)
	p.packs[p.id] = int64(len(p.data))
	if len(p.data) >= packBytes {
		return c, p.flush()
	}
	return c, nil
}

// flush sends what there is.
func (p *packer) flush() error {
	if len(p.data) == 0 {
		return nil
	}
	id, data := p.id, p.data
	p.id, p.data = "", nil
	select {
	case p.s.room <- struct{}{}:
	case <-p.ctx.Done():
		if err := p.group.Wait(); err != nil {
			return err
		}
		return p.ctx.Err()
	}
	p.group.Go(func() error {
		defer func() { <-p.s.room }()
		out, err := keyring{p.s}.seal(p.ctx, p.t, id, p.s.zip.EncodeAll(data, nil))
		if err != nil {
			return err
		}
		p.sent.Add(int64(len(out)))
		_, err = p.s.o.Objects.Replace(p.ctx, packName(p.t, id), out, "")
		return err
	})
	return nil
}

// close waits until all is there.
func (p *packer) close() error {
	err := p.flush()
	if e := p.group.Wait(); e != nil {
		return e
	}
	return err
}

// undoTime bounds how long undo takes.
const undoTime = time.Minute

// undo takes away what was sent: no snapshot refers to it, and none will. Else code could fill the store with a file that cannot
// be kept, and new content beside it again and again. What the store does not remove is swept later.
func (p *packer) undo() {
	_ = p.group.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), undoTime)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(sendParallel)
	for id := range p.packs {
		group.Go(func() error { return p.s.o.Objects.Remove(ctx, packName(p.t, id)) })
	}
	if err := group.Wait(); err != nil {
		p.s.o.Log.Warn("what was sent for a snapshot that failed is not removed; swept later", "thread", p.t.String(), "error", err)
	}
}

// readPack returns the content of a pack.
func (s *Snapshots) readPack(ctx context.Context, t sandbox.Thread, h *head, id string) ([]byte, error) {
	name := packName(t, id)
	data, _, err := s.o.Objects.Read(ctx, name, maxPackBytes+sealedMore)
	if err != nil {
		return nil, err
	}
	if data, err = (keyring{s}).unseal(ctx, t, id, data); err != nil {
		return nil, err
	}
	out, err := s.unzip.DecodeAll(data, nil)
	if err == nil && int64(len(out)) != h.Packs[id] {
		err = fmt.Errorf("it has %d bytes, not %d", len(out), h.Packs[id])
	}
	if err != nil {
		return nil, broken(s.o.Objects.Name(), name, err)
	}
	return out, nil
}

// cut returns the bytes of a chunk from its pack, which are the saved ones.
func (c chunk) cut(pack []byte) ([]byte, error) {
	if c.At > int64(len(pack)) || c.Bytes > int64(len(pack))-c.At {
		return nil, fmt.Errorf("%d bytes at %d are not in it", c.Bytes, c.At)
	}
	data := pack[c.At : c.At+c.Bytes]
	if sha256.Sum256(data) != c.Sum {
		return nil, fmt.Errorf("%d bytes at %d have another SHA-256", c.Bytes, c.At)
	}
	return data, nil
}

func newZip() (*zstd.Encoder, *zstd.Decoder, error) {
	zip, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(2), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, nil, err
	}
	unzip, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(maxPackBytes+1))
	return zip, unzip, err
}

func sumOf(data []byte) sum { return sha256.Sum256(data) }
