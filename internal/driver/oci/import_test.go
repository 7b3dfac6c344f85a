package oci_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	imagespecs "github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"github.com/skerry-sandbox/skerry/internal/driver/drivertest"
	"github.com/skerry-sandbox/skerry/internal/driver/oci"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// layer is a tar archive of headers. A regular file holds its own name.
func layer(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range headers {
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(h.Name))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write([]byte(h.Name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// ociArchive is an image of layers in the format of OCI.
func ociArchive(t *testing.T, arch string, layers ...[]byte) []byte {
	t.Helper()
	parts := map[string][]byte{ocispec.ImageLayoutFile: []byte(`{"imageLayoutVersion":"1.0.0"}`)}
	add := func(mediaType string, data []byte) ocispec.Descriptor {
		d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
		parts["blobs/sha256/"+d.Digest.Encoded()] = data
		return d
	}
	text := func(v any) []byte {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	config := ocispec.Image{Platform: ocispec.Platform{Architecture: arch, OS: "linux"}, RootFS: ocispec.RootFS{Type: "layers"}}
	manifest := ocispec.Manifest{Versioned: imagespecs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest}
	for _, l := range layers {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		if _, err := w.Write(l); err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, digest.FromBytes(l))
		manifest.Layers = append(manifest.Layers, add(ocispec.MediaTypeImageLayerGzip, packed.Bytes()))
	}
	manifest.Config = add(ocispec.MediaTypeImageConfig, text(config))
	parts["index.json"] = text(ocispec.Index{Versioned: imagespecs.Versioned{SchemaVersion: 2}, Manifests: []ocispec.Descriptor{add(ocispec.MediaTypeImageManifest, text(manifest))}})
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, data := range parts {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func dir(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755}
}
func file(name string, mode int64, uid int) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Uid: uid, Gid: uid}
}

// importer is a driver, and the folder of an image that is not there.
func importer(t *testing.T) (d *oci.Driver, home string) {
	t.Helper()
	return importerOf(t, 0)
}

// importerOf has a limit of an image's bytes.
func importerOf(t *testing.T, bytes int64) (d *oci.Driver, home string) {
	t.Helper()
	if os.Geteuid() != 0 {
		drivertest.Missing(t, "root", "an image has files of others")
	}
	d, err := oci.New(oci.Options{Root: t.TempDir(), ImageBytes: bytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d, t.TempDir()
}

// TestImportImage: an archive becomes the folder of an image, once each time that the archive changes.
func TestImportImage(t *testing.T) {
	t.Parallel()
	d, home := importer(t)
	folder, source := filepath.Join(home, "rootfs"), filepath.Join(home, "image.tar")
	write := func(data []byte) {
		t.Helper()
		if err := os.WriteFile(source, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	imports := func(want bool) {
		t.Helper()
		if got, err := d.ImportImage(t.Context(), folder, source); err != nil || got != want {
			t.Fatalf("imported %v, %v; want %v", got, err, want)
		}
	}
	first := layer(t, dir("."), dir("etc"), file("etc/gone", 0o644, 0), file("etc/kept", 0o640, 7), tar.Header{Typeflag: tar.TypeSymlink, Name: "link", Linkname: "/etc/kept"})
	second := layer(t, dir("etc"), file("etc/.wh.gone", 0o644, 0), file("etc/new", 0o755, 0))
	write(ociArchive(t, runtime.GOARCH, first, second))
	imports(true)
	imports(false)
	kept, err := os.Stat(filepath.Join(folder, "etc/kept"))
	if err != nil || kept.Mode().Perm() != 0o640 {
		t.Errorf("etc/kept: %v, %v", kept, err)
	}
	if target, err := os.Readlink(filepath.Join(folder, "link")); target != "/etc/kept" {
		t.Errorf("link to %q, %v", target, err)
	}
	if _, err := os.Stat(filepath.Join(folder, "etc/gone")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what the second layer deletes: %v", err)
	}
	before, _ := d.ImageNow(t.Context(), folder)

	time.Sleep(10 * time.Millisecond) // the archive has another time of change
	write(ociArchive(t, runtime.GOARCH, layer(t, dir("."), file("other", 0o644, 0))))
	imports(true)
	imports(false)
	if after, err := d.ImageNow(t.Context(), folder); err != nil || after == before {
		t.Errorf("another archive makes no other image: %s, %v", after, err)
	}
	if _, err := os.Stat(filepath.Join(folder, "etc")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file of the former archive: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(home, ".*-*")); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
}

// TestImportIsHarmless: the image lies in a folder that users of the host may enter. Nothing in it gives them a right.
func TestImportIsHarmless(t *testing.T) {
	t.Parallel()
	d, home := importer(t)
	folder, source := filepath.Join(home, "rootfs"), filepath.Join(home, "image.tar")
	suid, capable := file("suid", 0o6755, 0), file("capable", 0o755, 0)
	capable.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": "\x01\x00\x00\x02\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "SCHILY.xattr.user.kind": "x"}
	shared := dir("shared")
	shared.Mode = 0o3777
	headers := []tar.Header{
		dir("."), suid, capable, shared, {Typeflag: tar.TypeBlock, Name: "disk", Mode: 0o666, Devmajor: 8}, {Typeflag: tar.TypeChar, Name: "memory", Mode: 0o666, Devmajor: 1, Devminor: 1},
		{Typeflag: tar.TypeLink, Name: "hard", Linkname: "suid", Mode: 0o6755},
	}
	if err := os.WriteFile(source, ociArchive(t, runtime.GOARCH, layer(t, headers...)), 0o600); err != nil {
		t.Fatal(err)
	}
	if imported, err := d.ImportImage(t.Context(), folder, source); err != nil || !imported {
		t.Fatal(imported, err)
	}
	for name, want := range map[string]os.FileMode{"suid": 0o755, "hard": 0o755, "capable": 0o755, "shared": os.ModeDir | os.ModeSticky | 0o777} {
		if info, err := os.Lstat(filepath.Join(folder, name)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %s", name, info, err, want)
		}
	}
	for _, name := range []string{"disk", "memory"} {
		if info, err := os.Lstat(filepath.Join(folder, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if n, err := unix.Getxattr(filepath.Join(folder, "capable"), "security.capability", nil); err == nil {
		t.Errorf("a program has capabilities, of %d bytes", n)
	}
}

// TestImportKeepsFolders: a folder that another program made stays, whatever archive lies beside it.
func TestImportKeepsFolders(t *testing.T) {
	t.Parallel()
	d, home := importer(t)
	folder, source := filepath.Join(home, "rootfs"), filepath.Join(home, "image.tar")
	if err := errors.Join(os.Mkdir(folder, 0o755), os.WriteFile(source, ociArchive(t, runtime.GOARCH, layer(t, file("x", 0o644, 0))), 0o600)); err != nil {
		t.Fatal(err)
	}
	stays := func() {
		t.Helper()
		for _, from := range []string{source, folder} {
			if imported, err := d.ImportImage(t.Context(), folder, from); imported || err != nil {
				t.Errorf("%s: imported %v, %v", from, imported, err)
			}
		}
	}
	stays()
	// It takes the place of one that the driver made.
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	if imported, err := d.ImportImage(t.Context(), folder, source); !imported || err != nil {
		t.Fatalf("imported %v, %v", imported, err)
	}
	if err := errors.Join(os.Rename(folder, folder+".before"), os.Mkdir(folder, 0o755), os.WriteFile(source, ociArchive(t, runtime.GOARCH, layer(t, file("y", 0o644, 0))), 0o600)); err != nil {
		t.Fatal(err)
	}
	stays()
	if entries, _ := os.ReadDir(folder); len(entries) != 0 {
		t.Errorf("it has %v by now", entries)
	}
}

// TestImportRefuses: a broken archive, or one for other machines, has an error that names it, and leaves nothing.
func TestImportRefuses(t *testing.T) {
	t.Parallel()
	d, home := importer(t)
	outside := filepath.Join(t.TempDir(), "outside")
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	good := layer(t, file("x", 0o644, 0))
	for name, data := range map[string][]byte{
		"text":     []byte("no archive"),
		"cut off":  ociArchive(t, runtime.GOARCH, good)[:1500],
		"tampered": bytes.Replace(ociArchive(t, runtime.GOARCH, good), []byte{0x1f, 0x8b, 8, 0, 0}, []byte{0x1f, 0x8b, 8, 0, 1}, 1),
		"foreign":  ociArchive(t, other, good),
	} {
		source := filepath.Join(home, "image.tar")
		if err := os.WriteFile(source, data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := d.ImportImage(t.Context(), filepath.Join(home, "rootfs"), source)
		if err == nil || !strings.Contains(err.Error(), source) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(filepath.Join(home, "rootfs")); err == nil {
			t.Errorf("%s: it left a folder", name)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(home, ".stage-*")); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
	if _, err := d.ImportImage(t.Context(), filepath.Join(home, "rootfs"), filepath.Join(home, "none.tar")); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("without an archive: %v", err)
	}
	// A layer's names stay in the image, whatever they say.
	source := filepath.Join(home, "image.tar")
	hostile := layer(t, tar.Header{Typeflag: tar.TypeSymlink, Name: "out", Linkname: filepath.Dir(outside)}, file("out/outside", 0o644, 0), file("../../up", 0o644, 0))
	if err := os.WriteFile(source, ociArchive(t, runtime.GOARCH, hostile), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _ = d.ImportImage(t.Context(), filepath.Join(home, "rootfs"), source)
	if _, err := os.Lstat(outside); err == nil {
		t.Error("a layer wrote through a link of its own, outside of the image")
	}
}

// TestImportIsBounded: an archive that unpacks to more than an image may have leaves nothing on the disk, and the image that was
// there stays.
func TestImportIsBounded(t *testing.T) {
	t.Parallel()
	d, home := importerOf(t, 1<<20)
	folder, source := filepath.Join(home, "rootfs"), filepath.Join(home, "image.tar")
	imports := func(layers ...[]byte) error {
		t.Helper()
		if err := os.WriteFile(source, ociArchive(t, runtime.GOARCH, layers...), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := d.ImportImage(t.Context(), folder, source)
		return err
	}
	if err := imports(layer(t, file("kept", 0o644, 0))); err != nil {
		t.Fatal(err)
	}
	long := func(name string, size int) []byte {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(size)}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, size)); err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	for name, layers := range map[string][][]byte{
		"one file":             {long("a", 1<<20+1)},
		"two layers":           {long("a", 1<<19), long("b", 1<<19+1)},
		"one file, many times": {long("a", 1<<19), long("a", 1<<19), long("a", 1<<19)},
		"behind the end":       {append(layer(t, file("x", 0o644, 0)), make([]byte, 32<<20)...)},
	} {
		if err := imports(layers...); !errors.Is(err, sandbox.NotSupported) || !strings.Contains(err.Error(), "larger than an image may be") {
			t.Errorf("%s: %v", name, err)
		}
		entries, err := os.ReadDir(home)
		for _, e := range entries {
			if n := e.Name(); n != "rootfs" && n != "image.tar" && n != ".lock" && n != ".unpacked" {
				t.Errorf("%s: %s is left", name, n)
			}
		}
		if _, kept := os.Stat(filepath.Join(folder, "kept")); err != nil || kept != nil {
			t.Errorf("%s: the image of before: %v, %v", name, kept, err)
		}
	}
	if err := imports(long("a", 1<<19), long("b", 1<<19)); err != nil {
		t.Errorf("what fits: %v", err)
	}
}
