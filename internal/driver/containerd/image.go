package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/platforms"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// pullTimeout bounds fetching one image: a gigabyte at 20 Mbit/s.
const pullTimeout = 10 * time.Minute

// maxConfigBytes bounds the config of an image that is read.
const maxConfigBytes = 4 << 20

// image is an image that sandboxes can be made of.
type image struct {
	name   string        // containerd's name of it
	target digest.Digest // names its contents for good
	chain  string        // the snapshot of its layers
	// volumes are the folders that the image declares to be written to.
	volumes []string
	tmpfs   []hardening.Tmpfs // in their place, for one sandbox
}

// imageStore is the driver's hold on containerd's images and snapshots.
type imageStore struct {
	engine  *client.Client
	log     *slog.Logger
	mayPull bool
	// mostBytes bounds what an archive unpacks to; 0: as imagelimit says.
	mostBytes int64
	closing   context.Context
	group     sync.WaitGroup // pulls

	mu     sync.Mutex
	known  map[digest.Digest]image // that were looked at, by target
	pulls  map[string]*pull        // under way, by name
	closed bool
}

// pull is an image that is being fetched.
type pull struct {
	done chan struct{}
	err  error // once done is closed
}

func (s *imageStore) init(d *Driver, o Options) {
	s.engine, s.log, s.mayPull, s.mostBytes, s.closing = d.engine, d.log, o.Pull, o.ImageBytes, d.closing
	s.known, s.pulls = make(map[digest.Digest]image), make(map[string]*pull)
}

// wait ends when no pull is under way any more. The driver's context has ended before.
func (s *imageStore) wait() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.group.Wait()
}

// fullName is a reference as containerd and registries name it: "docker.io/library/x:latest" for "x".
func fullName(ref string) (string, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return "", sandbox.Wrap(sandbox.NotFound, err, "%.200q is no name of an image", ref)
	}
	return named.String(), nil
}

// find returns an image by its reference, unpacked. NotFound: it is not there, and is not to be fetched or
// cannot be. NotSupported: it cannot be used.
func (s *imageStore) find(ctx context.Context, ref string) (image, error) {
	if ref == "" {
		return image{}, sandbox.Errorf(sandbox.NotSupported, "this driver needs an image: it cannot use the host's own programs")
	}
	name, err := fullName(ref)
	if err != nil {
		return image{}, err
	}
	found, err := s.lookUp(ctx, ref, name)
	if isNotFound(err) && s.mayPull {
		if err := s.fetch(ctx, name); err != nil {
			return image{}, err
		}
		found, err = s.lookUp(ctx, ref, name)
	}
	if err != nil {
		return image{}, lookUpError(err, ref)
	}
	s.mu.Lock()
	img, ok := s.known[found.Target.Digest]
	s.mu.Unlock()
	img.name = found.Name
	if ok {
		return img, nil
	}
	return s.look(ctx, ref, found)
}

// ImageNow implements driver.ImageTeller.
func (d *Driver) ImageNow(ctx context.Context, ref string) (string, error) {
	name, err := fullName(ref)
	if err != nil {
		return "", err
	}
	found, err := d.images.lookUp(ctx, ref, name)
	if err != nil {
		return "", lookUpError(err, ref)
	}
	return found.Target.Digest.String(), nil
}

// lookUpError is what an error of lookUp is for callers.
func lookUpError(err error, ref string) error {
	if isNotFound(err) {
		return sandbox.Wrap(sandbox.NotFound, err, "there is no image %.200q", ref)
	}
	return engineError(err, "containerd does not tell whether the image is there")
}

// lookUp finds an image by its full name, or by the very words of the reference.
func (s *imageStore) lookUp(ctx context.Context, ref, name string) (images.Image, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	found, err := s.engine.ImageService().Get(ctx, name)
	if isNotFound(err) && ref != name {
		return s.engine.ImageService().Get(ctx, ref)
	}
	return found, err
}

// look reads what an image is, and unpacks it when that was not done.
func (s *imageStore) look(ctx context.Context, ref string, found images.Image) (image, error) {
	config, err := s.config(ctx, found)
	if err != nil {
		return image{}, sandbox.Wrap(sandbox.NotSupported, native(err), "image %.200q is not one for this host, or not whole", ref)
	}
	img := image{
		name: found.Name, target: found.Target.Digest, chain: identity.ChainID(config.RootFS.DiffIDs).String(),
		volumes: slices.Collect(maps.Keys(config.Config.Volumes)),
	}
	if err := s.unpack(ctx, found); err != nil {
		return image{}, engineError(err, "the image was not unpacked")
	}
	s.mu.Lock()
	s.known[img.target] = img
	s.mu.Unlock()
	return img, nil
}

func (s *imageStore) config(ctx context.Context, found images.Image) (ocispec.Image, error) {
	var config ocispec.Image
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	store := s.engine.ContentStore()
	desc, err := found.Config(ctx, store, platforms.Default())
	if err != nil {
		return config, err
	}
	if desc.Size > maxConfigBytes {
		return config, fmt.Errorf("a config of %d bytes", desc.Size)
	}
	data, err := content.ReadBlob(ctx, store, desc)
	if err != nil {
		return config, err
	}
	return config, json.Unmarshal(data, &config)
}

// unpack makes the missing snapshots of an image's layers.
func (s *imageStore) unpack(ctx context.Context, found images.Image) error {
	return client.NewImage(s.engine, found).Unpack(ctx, snapshotter)
}

// fetch pulls an image and waits for it until ctx ends. The pull goes on then: the next call finds it
// further on, or there.
func (s *imageStore) fetch(ctx context.Context, name string) error {
	s.mu.Lock()
	p := s.pulls[name]
	if p == nil && !s.closed {
		p = &pull{done: make(chan struct{})}
		s.pulls[name] = p
		s.group.Go(func() { s.pull(name, p) })
	}
	s.mu.Unlock()
	if p == nil {
		return sandbox.Errorf(sandbox.Unavailable, "the driver is closed")
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return sandbox.Wrap(sandbox.Unavailable, context.Cause(ctx), "image %.200q is being fetched: try again later", name)
	}
}

func (s *imageStore) pull(name string, p *pull) {
	ctx, cancel := context.WithTimeout(s.closing, pullTimeout)
	defer cancel()
	began := time.Now()
	s.log.Info("fetching an image", "driver", Name, "image", name)
	_, err := s.engine.Pull(ctx, name, client.WithPullUnpack, client.WithPullSnapshotter(snapshotter))
	if err != nil {
		s.log.Warn("an image was not fetched", "driver", Name, "image", name, "error", err)
		p.err = sandbox.Wrap(sandbox.NotFound, native(err), "image %.200q is not there and cannot be fetched", name)
	} else {
		s.log.Info("fetched an image", "driver", Name, "image", name, "took", time.Since(began).Round(time.Millisecond))
	}
	s.mu.Lock()
	delete(s.pulls, name)
	s.mu.Unlock()
	close(p.done)
}

// prepare makes the snapshot of a sandbox's root file system on top of its image, and returns the mounts
// that make it. It is writable for the runtime, which makes mount points in it, and not for the sandbox.
func (s *imageStore) prepare(ctx context.Context, key string, img image) ([]mount.Mount, error) {
	service := s.engine.SnapshotService(snapshotter)
	mounts, err := service.Prepare(ctx, key, img.chain)
	switch {
	case isAlreadyExists(err): // left by a sandbox whose removal a crash interrupted
		if err := s.release(ctx, key); err != nil {
			return nil, err
		}
	case isNotFound(err): // another client removed the image's snapshots since they were made
		found, err := s.engine.ImageService().Get(ctx, img.name)
		if err != nil {
			return nil, err
		}
		if err := s.unpack(ctx, found); err != nil {
			return nil, err
		}
	default:
		return mounts, err
	}
	return service.Prepare(ctx, key, img.chain)
}

// release removes the snapshot of a sandbox. A missing one is no error.
func (s *imageStore) release(ctx context.Context, key string) error {
	err := s.engine.SnapshotService(snapshotter).Remove(ctx, key)
	if isNotFound(err) {
		return nil
	}
	return err
}

// put makes an image's record, or points the record of that name at other contents.
func (s *imageStore) put(ctx context.Context, img images.Image) (images.Image, error) {
	service := s.engine.ImageService()
	put, err := service.Create(ctx, img)
	if isAlreadyExists(err) {
		put, err = service.Update(ctx, img, "target", "labels")
	}
	return put, err
}

var errNotInArchive = errors.New("the archive holds no image of that name, and not just one")
