package containerd_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	imagespecs "github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/skerry-sandbox/skerry/internal/driver/containerd"
	"github.com/skerry-sandbox/skerry/internal/driver/containerd/containerdtest"
	"github.com/skerry-sandbox/skerry/internal/driver/drivertest"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// madeImage is an image of one folder, in parts.
type madeImage struct {
	blobs                   map[digest.Digest][]byte
	layer, config, manifest ocispec.Descriptor
}

func makeImage(t *testing.T, folder string, volumes ...string) madeImage {
	t.Helper()
	m := madeImage{blobs: make(map[digest.Digest][]byte)}
	add := func(mediaType string, data []byte) ocispec.Descriptor {
		desc := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
		m.blobs[desc.Digest] = data
		return desc
	}
	addJSON := func(mediaType string, v any) ocispec.Descriptor {
		data, err := json.Marshal(v)
		must(t, err)
		return add(mediaType, data)
	}
	m.layer = add(ocispec.MediaTypeImageLayer, tarOf(t, map[string][]byte{folder + "/": nil}))
	config := ocispec.Image{
		Platform: ocispec.Platform{Architecture: runtime.GOARCH, OS: "linux"},
		RootFS:   ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{m.layer.Digest}},
	}
	for _, v := range volumes {
		config.Config.Volumes = map[string]struct{}{v: {}}
	}
	m.config = addJSON(ocispec.MediaTypeImageConfig, config)
	m.manifest = addJSON(ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: imagespecs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: m.config, Layers: []ocispec.Descriptor{m.layer},
	})
	return m
}

// tarOf makes an archive of files; a name that ends in / is a folder.
func tarOf(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for name, data := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(data))}
		if strings.HasSuffix(name, "/") {
			header.Typeflag, header.Mode = tar.TypeDir, 0o755
		}
		must(t, w.WriteHeader(header))
		_, err := w.Write(data)
		must(t, err)
	}
	must(t, w.Close())
	return buf.Bytes()
}

// oci returns the archive in OCI's format, under a reference or under none.
func (m madeImage) oci(t *testing.T, ref string) []byte {
	files := map[string][]byte{ocispec.ImageLayoutFile: []byte(`{"imageLayoutVersion":"1.0.0"}`)}
	for d, data := range m.blobs {
		files["blobs/sha256/"+d.Encoded()] = data
	}
	desc := m.manifest
	if ref != "" {
		desc.Annotations = map[string]string{ocispec.AnnotationRefName: ref}
	}
	index, err := json.Marshal(ocispec.Index{Versioned: imagespecs.Versioned{SchemaVersion: 2}, Manifests: []ocispec.Descriptor{desc}})
	must(t, err)
	files["index.json"] = index
	return tarOf(t, files)
}

// docker returns the archive as "docker save" writes it.
func (m madeImage) docker(t *testing.T, ref string) []byte {
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{ref}, "Layers": []string{"layer.tar"}}})
	must(t, err)
	return tarOf(t, map[string][]byte{"manifest.json": manifest, "config.json": m.blobs[m.config.Digest], "layer.tar": m.blobs[m.layer.Digest]})
}

func gzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	_, err := w.Write(data)
	must(t, err)
	must(t, w.Close())
	return buf.Bytes()
}

// testImageArchives: archives of both formats become images that sandboxes start on, once each time that
// they change.
func testImageArchives(t *testing.T, daemon *containerdtest.Daemon) {
	d := at(t, daemon.Address)
	c := engine(t, daemon)
	file := filepath.Join(t.TempDir(), "image.tar")
	for i, archive := range []func(folder string) []byte{
		func(folder string) []byte { return makeImage(t, folder).oci(t, "skerry/archived:1") },
		func(folder string) []byte { return gzipped(t, makeImage(t, folder).oci(t, "1")) },
		func(folder string) []byte { return makeImage(t, folder).docker(t, "skerry/archived:1") },
		func(folder string) []byte { return makeImage(t, folder).docker(t, "another/name:2") },
	} {
		folder := "from-archive-" + string(rune('a'+i))
		must(t, os.WriteFile(file, archive(folder), 0o600))
		for _, want := range []bool{true, false} {
			imported, err := d.ImportImage(ctx(t), "skerry/archived:1", file)
			if err != nil || imported != want {
				t.Fatalf("archive %d: imported %v, %v; want %v", i, imported, err, want)
			}
		}
		spec := smallSpec(t, i, "skerry/archived:1")
		start(t, d, spec)
		if _, err := os.Stat(fmt.Sprintf("/proc/%d/root/%s", pid(t, c, spec.ID), folder)); err != nil {
			t.Errorf("archive %d: %v", i, err)
		}
	}
	for name, data := range map[string][]byte{
		"text": []byte("no archive"), "empty": tarOf(t, nil), "cut off": makeImage(t, "x").oci(t, "1")[:2000],
	} {
		must(t, os.WriteFile(file, data, 0o600))
		if _, err := d.ImportImage(ctx(t), "skerry/broken:1", file); err == nil {
			t.Errorf("%s: imported", name)
		}
	}
	for ref, source := range map[string]string{"skerry/x:1": "/no/such/archive", "No Name": file} {
		if _, err := d.ImportImage(ctx(t), ref, source); !errors.Is(err, sandbox.NotFound) {
			t.Errorf("%s from %s: %v, want not_found", ref, source, err)
		}
	}
}

// testImageBounds: an archive that unpacks to more than an image may have is refused before containerd has anything of it.
func testImageBounds(t *testing.T, daemon *containerdtest.Daemon) {
	d, err := containerd.New(containerd.Options{
		Address: daemon.Address, Namespace: namespace, Root: tempRoot(t), ImageBytes: 1 << 10, Probe: drivertest.Program(t),
	})
	must(t, err)
	t.Cleanup(func() { _ = d.Close() })
	m := makeImage(t, "x")
	m.blobs[m.layer.Digest] = gzipped(t, tarOf(t, map[string][]byte{"large": make([]byte, 1<<10+1)}))
	file := filepath.Join(t.TempDir(), "image.tar")
	for name, archive := range map[string][]byte{"oci": m.oci(t, "1"), "docker": m.docker(t, "skerry/large:1")} {
		must(t, os.WriteFile(file, archive, 0o600))
		if _, err := d.ImportImage(ctx(t), "skerry/large:1", file); !errors.Is(err, sandbox.NotSupported) || !strings.Contains(err.Error(), "larger than an image may be") {
			t.Errorf("%s: %v, want not_supported", name, err)
		}
		if _, err := engine(t, daemon).ImageService().Get(ctx(t), "docker.io/skerry/large:1"); err == nil {
			t.Errorf("%s: containerd has the image", name)
		}
	}
}

// testImageWithVolumes: a volume of an image is a bounded memory file system (the e2e tests write to one); a volume that
// would hide a folder of the sandbox is refused.
func testImageWithVolumes(t *testing.T, daemon *containerdtest.Daemon) {
	d := at(t, daemon.Address)
	file := filepath.Join(t.TempDir(), "image.tar")
	must(t, os.WriteFile(file, makeImage(t, "x", "/etc").oci(t, "1"), 0o600))
	_, err := d.ImportImage(ctx(t), "skerry/volume:1", file)
	must(t, err)
	if _, err := d.Create(ctx(t), smallSpec(t, 1, "skerry/volume:1")); !errors.Is(err, sandbox.NotSupported) {
		t.Errorf("got %v, want not_supported", err)
	}
}

// registry serves one image under the name "made".
func registry(t *testing.T, m madeImage) (host string, asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		kind, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/made/"), "/")
		desc := m.manifest
		if kind == "blobs" || strings.Contains(name, ":") {
			desc = ocispec.Descriptor{MediaType: "application/octet-stream", Digest: digest.Digest(name)}
			if desc.Digest == m.manifest.Digest {
				desc = m.manifest
			}
		} else if kind != "manifests" || name != "1" {
			http.NotFound(w, r)
			return
		}
		data, ok := m.blobs[desc.Digest]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", desc.MediaType)
		w.Header().Set("Docker-Content-Digest", desc.Digest.String())
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}))
	t.Cleanup(func() {
		server.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return strings.TrimPrefix(server.URL, "http://"), asked
}

// testPull: an image that is not there is fetched when that is allowed, once for all who wait for it.
func testPull(t *testing.T, daemon *containerdtest.Daemon) {
	host, asked := registry(t, makeImage(t, "from-registry"))
	if _, err := at(t, daemon.Address).Create(ctx(t), smallSpec(t, 1, host+"/made:1")); !errors.Is(err, sandbox.NotFound) || asked.Load() != 0 {
		t.Errorf("without leave: %v, %d requests; want not_found and none", err, asked.Load())
	}
	d, err := containerd.New(containerd.Options{
		Address: daemon.Address, Namespace: namespace, Root: tempRoot(t), Pull: true, Probe: drivertest.Program(t),
	})
	must(t, err)
	t.Cleanup(func() { _ = d.Close() })
	if _, err := d.Create(ctx(t), smallSpec(t, 1, host+"/made:2")); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("an image that the registry lacks: %v, want not_found", err)
	}
	done := make(chan error, 3)
	for i := range 3 {
		go func() {
			_, err := d.Create(ctx(t), smallSpec(t, i, host+"/made:1"))
			done <- err
		}()
	}
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	c := engine(t, daemon)
	for i := range 3 {
		spec := smallSpec(t, i, "")
		if _, err := os.Stat(fmt.Sprintf("/proc/%d/root/from-registry", pid(t, c, spec.ID))); err != nil {
			t.Error(err)
		}
		must(t, d.Remove(ctx(t), spec.ID))
	}
}
