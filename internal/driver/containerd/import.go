package containerd

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	imagearchive "github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/pkg/archive"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/imagelimit"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// labelSource tells what an image was imported from, so that it is imported anew when that changes.
const labelSource = "io.skerry.source"

// ImportImage implements driver.ImageStore.
func (d *Driver) ImportImage(ctx context.Context, ref, source string) (imported bool, err error) {
	name, err := fullName(ref)
	if err != nil {
		return false, err
	}
	info, err := os.Stat(source)
	if err != nil || !filepath.IsAbs(source) {
		return false, sandbox.Wrap(sandbox.NotFound, err, "what image %.200q is to be imported from is not on this host", ref)
	}
	is := identityOf(info)
	there, err := d.images.lookUp(ctx, name, name)
	if err == nil && there.Labels[labelSource] == is {
		return false, nil
	}
	if err != nil && !isNotFound(err) {
		return false, engineError(err, "containerd does not tell whether the image is there")
	}
	labels := map[string]string{labelSource: is}
	if info.IsDir() {
		err = d.images.importFolder(ctx, name, source, labels)
	} else {
		err = d.images.importArchive(ctx, name, source, labels)
	}
	if errors.Is(err, imagelimit.ErrLimit) {
		return false, sandbox.Wrap(sandbox.NotSupported, err, "the image was not imported: %v", err)
	}
	if err != nil {
		return false, engineError(err, "the image was not imported")
	}
	return true, nil
}

// identityOf names the present state of a file, or a folder for good: a replaced one has another.
func identityOf(info os.FileInfo) string {
	var dev, ino uint64
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		dev, ino = stat.Dev, stat.Ino
	}
	if info.IsDir() {
		return fmt.Sprintf("folder %x %x", dev, ino)
	}
	return fmt.Sprintf("file %x %x %d %d", dev, ino, info.Size(), info.ModTime().UnixNano())
}

// importFolder makes an image of an unpacked root file system.
func (s *imageStore) importFolder(ctx context.Context, name, folder string, labels map[string]string) error {
	ctx, cancel := context.WithCancel(ctx) // ends the writer of the archive, too
	defer cancel()
	layer := archive.Diff(ctx, "", folder)
	return errors.Join(s.makeImage(ctx, name, layer, labels), layer.Close())
}

// importArchive imports an archive in the format of OCI or of "docker save", compressed or not. Its
// image of that name is taken, or its only one.
func (s *imageStore) importArchive(ctx context.Context, name, file string, labels map[string]string) (err error) {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	// Before anything of it is containerd's: that unpacks a layer whatever it grows to.
	if err := imagelimit.Check(ctx, f, imagelimit.New(s.mostBytes)); err != nil {
		return err
	}
	plain, err := compression.DecompressStream(f)
	if err != nil {
		return err
	}
	defer plain.Close() //nolint:errcheck // only read
	ctx, done, err := s.engine.WithLease(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done(context.WithoutCancel(ctx))) }()
	found, err := s.engine.Import(ctx, plain, client.WithImageLabels(labels),
		client.WithImageRefTranslator(imagearchive.AddRefPrefix(named.Name())))
	if err != nil {
		return err
	}
	for _, img := range found {
		if img.Name == name {
			return s.unpack(ctx, img)
		}
	}
	if len(found) != 1 {
		return errNotInArchive
	}
	img, err := s.put(ctx, images.Image{Name: name, Target: found[0].Target, Labels: labels})
	if err != nil {
		return err
	}
	return s.unpack(ctx, img)
}

// makeImage makes an image of one layer, the tar archive of a root file system, and unpacks it.
func (s *imageStore) makeImage(ctx context.Context, name string, layer io.Reader, labels map[string]string) (err error) {
	// Until the image's record is there, nothing else keeps the garbage collector from its parts.
	ctx, done, err := s.engine.WithLease(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done(context.WithoutCancel(ctx))) }()
	layerDesc, err := s.writeBlob(ctx, ocispec.MediaTypeImageLayer, layer, nil)
	if err != nil {
		return err
	}
	configDesc, err := s.writeJSON(ctx, ocispec.MediaTypeImageConfig, ocispec.Image{
		Platform: ocispec.Platform{Architecture: runtime.GOARCH, OS: runtime.GOOS},
		RootFS:   ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{layerDesc.Digest}},
	}, nil)
	if err != nil {
		return err
	}
	manifestDesc, err := s.writeJSON(ctx, ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageManifest,
		Config:    configDesc,
		Layers:    []ocispec.Descriptor{layerDesc},
	}, map[string]string{
		"containerd.io/gc.ref.content.config": configDesc.Digest.String(),
		"containerd.io/gc.ref.content.l.0":    layerDesc.Digest.String(),
	})
	if err != nil {
		return err
	}
	img, err := s.put(ctx, images.Image{Name: name, Target: manifestDesc, Labels: labels})
	if err != nil {
		return err
	}
	return s.unpack(ctx, img)
}

func (s *imageStore) writeJSON(ctx context.Context, mediaType string, v any, labels map[string]string) (ocispec.Descriptor, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	return s.writeBlob(ctx, mediaType, bytes.NewReader(data), labels)
}

// blobChunk is what is sent at once: containerd answers each write.
const blobChunk = 1 << 20

// writeBlob stores what r yields, of a length and digest that are unknown before.
func (s *imageStore) writeBlob(ctx context.Context, mediaType string, r io.Reader, labels map[string]string) (desc ocispec.Descriptor, err error) {
	w, err := content.OpenWriter(ctx, s.engine.ContentStore(), content.WithRef("skerry-"+rand.Text()))
	if err != nil {
		return desc, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	// An archive comes in pieces of a header, or of a few KiB.
	whole := bufio.NewWriterSize(w, blobChunk)
	n, err := io.Copy(whole, r)
	if err == nil {
		err = whole.Flush()
	}
	if err != nil {
		return desc, err
	}
	if err := w.Commit(ctx, 0, "", content.WithLabels(labels)); err != nil && !isAlreadyExists(err) {
		return desc, err
	}
	return ocispec.Descriptor{MediaType: mediaType, Digest: w.Digest(), Size: n}, nil
}
