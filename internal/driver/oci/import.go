package oci

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	imagearchive "github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/containerd/v2/pkg/archive"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/containerd/v2/plugins/content/local"
	containerdlog "github.com/containerd/log"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/skerry-sandbox/skerry/internal/driver/engine/imagelimit"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Files of an image's folder, beside rootfs.
const (
	unpackedFile = ".unpacked" // says of which archive this driver made rootfs, and which folder that was
	lockFile     = ".lock"     // images/build.sh takes it, too
	stagePattern = ".stage-*"
	oldPattern   = ".old-*"
)

// archives makes images of archives.
type archives struct {
	mostBytes int64 // that an image may have; 0: as imagelimit says
}

// ImportImage implements driver.ImageStore. It unpacks an archive into the folder of the image, which lies in a folder
// of its own. A folder that another program made stays as it is.
func (a archives) ImportImage(ctx context.Context, folder, source string) (imported bool, err error) {
	if filepath.Clean(folder) == filepath.Clean(source) {
		return false, nil
	}
	info, err := os.Stat(source)
	if err != nil || !info.Mode().IsRegular() || !filepath.IsAbs(source) || !filepath.IsAbs(folder) {
		return false, sandbox.Wrap(sandbox.NotFound, err, "there is no archive of an image at %s", source)
	}
	is := archiveIdentity(info)
	if settled, err := isSettled(folder, is); err != nil || settled {
		return false, err
	}
	home := filepath.Dir(folder)
	lock, err := lockedfile.WaitLock(ctx, filepath.Join(home, lockFile))
	if err != nil {
		return false, sandbox.Wrap(sandbox.Unavailable, err, "the lock of the folder of images %s was not to be had", home)
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	if settled, err := isSettled(folder, is); err != nil || settled { // another server was first
		return false, err
	}
	sweepImages(home)
	if err := a.unpackInto(ctx, folder, source, is); err != nil {
		return false, sandbox.Wrap(sandbox.NotSupported, err, "the archive %s was not unpacked into %s: %v", source, folder, err)
	}
	sweepImages(home)
	return true, nil
}

// isSettled reports whether a folder is what this archive makes, or is none of this driver's: another program has put
// its own in the place.
func isSettled(folder, archive string) (bool, error) {
	now, err := os.Lstat(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	var mark []byte
	if err == nil {
		mark, err = os.ReadFile(filepath.Join(filepath.Dir(folder), unpackedFile)) //nolint:gosec // the administrator's folder of images
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, sandbox.Wrap(sandbox.Internal, err, "the folder of an image cannot be read")
	}
	from, made, _ := strings.Cut(strings.TrimSpace(string(mark)), "\n")
	return from == archive || made != inode(now), nil
}

// archiveIdentity names the present state of an archive: a replaced one has another.
func archiveIdentity(info os.FileInfo) string {
	return fmt.Sprintf("%s %d %d", inode(info), info.Size(), info.ModTime().UnixNano())
}

func inode(info os.FileInfo) string {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("%x %x", stat.Dev, stat.Ino)
	}
	return ""
}

// unpackInto unpacks beside the folder, and renames at the end: no sandbox starts on half of an image, and nothing is left of
// one that is too large.
func (a archives) unpackInto(ctx context.Context, folder, source, archive string) (err error) {
	home := filepath.Dir(folder)
	stage, err := os.MkdirTemp(home, stagePattern)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(stage)) }()
	root := filepath.Join(stage, "rootfs")
	if err := os.Mkdir(root, 0o755); err != nil { //nolint:gosec // sandboxes pass through it with uids of their own
		return err
	}
	if err := unpack(ctx, root, source, filepath.Join(stage, "blobs"), imagelimit.New(a.mostBytes)); err != nil {
		return err
	}
	if err := os.Chmod(root, 0o755); err != nil { //nolint:gosec // the same: a layer may have set another mode
		return err
	}
	if _, err := os.Lstat(folder); err == nil {
		// Sandboxes that run keep the tree that they were started from, under whatever name.
		old, err := os.MkdirTemp(home, oldPattern)
		if err != nil {
			return err
		}
		if err := os.Rename(folder, filepath.Join(old, "rootfs")); err != nil {
			return err
		}
	}
	info, err := os.Lstat(root)
	if err != nil {
		return err
	}
	// The mark comes first: a folder without it would be another program's for good.
	if err := lockedfile.Replace(filepath.Join(home, unpackedFile), []byte(archive+"\n"+inode(info)+"\n")); err != nil {
		return err
	}
	return os.Rename(root, folder)
}

// quietly keeps containerd's packages from logging beside the server's log what is no problem here: that the file
// system has no fsverity.
var quietly = sync.OnceFunc(func() { _ = containerdlog.SetLevel("error") })

// unpack applies the layers of the archive's image for this machine. The store compares each part with its digest.
func unpack(ctx context.Context, root, source, blobs string, limit *imagelimit.Limit) error {
	f, err := os.Open(source) //nolint:gosec // the administrator's folder of images
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	if err := imagelimit.CheckParts(ctx, f); err != nil {
		return err
	}
	plain, err := compression.DecompressStream(f)
	if err != nil {
		return err
	}
	defer plain.Close() //nolint:errcheck // only read
	quietly()
	store, err := local.NewStore(blobs)
	if err != nil {
		return err
	}
	index, err := imagearchive.ImportIndex(ctx, texts{store}, limit.Reader(plain))
	if err != nil {
		return err
	}
	manifest, err := images.Manifest(ctx, texts{store}, index, platforms.Default())
	if err != nil {
		return err
	}
	for _, layer := range manifest.Layers {
		blob, err := store.ReaderAt(ctx, layer)
		if err != nil {
			return err
		}
		err = applyLayer(ctx, root, content.NewReader(blob), limit)
		if err := errors.Join(err, blob.Close()); err != nil {
			return fmt.Errorf("layer %s: %w", layer.Digest, err)
		}
	}
	return nil
}

// texts is a store whose manifests, indexes and configs are short: containerd reads them into memory whole.
type texts struct{ content.Store }

// ReaderAt implements content.Provider. ImportIndex looks at the beginnings of layers without saying of which type they are.
func (t texts) ReaderAt(ctx context.Context, desc ocispec.Descriptor) (content.ReaderAt, error) {
	blob, err := t.Store.ReaderAt(ctx, desc)
	if err != nil || desc.MediaType == "" || blob.Size() <= imagelimit.MaxText {
		return blob, err
	}
	return nil, errors.Join(fmt.Errorf("%w: %s has %d bytes, at most %d are read", imagelimit.ErrLimit, desc.MediaType, blob.Size(), imagelimit.MaxText), blob.Close())
}

func applyLayer(ctx context.Context, root string, layer io.Reader, limit *imagelimit.Limit) error {
	packed, err := compression.DecompressStream(layer)
	if err != nil {
		return err
	}
	plain := limit.Reader(packed)
	filter := func(h *tar.Header) (bool, error) {
		if err := limit.Entry(h); err != nil {
			return false, err
		}
		return harmless(h), nil
	}
	if _, err = archive.Apply(ctx, root, plain, archive.WithFilter(filter)); err == nil {
		_, err = io.Copy(io.Discard, plain) // a decompressor may be a process, which must not be left writing
	}
	return errors.Join(err, packed.Close())
}

const (
	setIDs      = 0o6000
	xattrRecord = "SCHILY.xattr."
	userXattr   = xattrRecord + "user."
)

// harmless takes away what would give users of the host a right: they may enter the folder of images. In a sandbox none of it
// has an effect. It reports whether the entry is unpacked.
func harmless(h *tar.Header) bool {
	h.Mode &^= setIDs
	for name := range h.PAXRecords { // capabilities, and what overlays read
		if strings.HasPrefix(name, xattrRecord) && !strings.HasPrefix(name, userXattr) {
			delete(h.PAXRecords, name)
		}
	}
	return h.Typeflag != tar.TypeBlock && h.Typeflag != tar.TypeChar
}

// sweepImages removes what a killed server left half unpacked, and replaced trees once no sandbox runs on the image.
func sweepImages(home string) {
	stages, _ := filepath.Glob(filepath.Join(home, stagePattern))
	old, _ := filepath.Glob(filepath.Join(home, oldPattern))
	if len(old) > 0 && !mountsName(home) {
		stages = append(stages, old...)
	}
	for _, dir := range stages {
		_ = os.RemoveAll(dir) // the next import tries again
	}
}

// mountsName reports whether any process has a mount whose source or options name a path below a folder. An overlay
// names the path that its lower folder had when it was mounted.
func mountsName(folder string) bool {
	tables, err := filepath.Glob("/proc/[0-9]*/mountinfo")
	if err != nil {
		return true
	}
	for _, table := range tables {
		text, err := os.ReadFile(table) //nolint:gosec // of the kernel
		if err == nil && strings.Contains(string(text), folder+"/") {
			return true
		}
	}
	return false
}
