package docker_test

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/skerry-sandbox/skerry/internal/driver"
	"github.com/skerry-sandbox/skerry/internal/driver/docker"
	"github.com/skerry-sandbox/skerry/internal/driver/drivertest"
	"github.com/skerry-sandbox/skerry/internal/driver/engine/hardening"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func TestMain(m *testing.M) { drivertest.Main(m) }

// engine returns a connection of the test's own, apart from the driver's.
func engine(t testing.TB) *client.Client {
	t.Helper()
	c, err := client.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Ping(ctx(t), client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		drivertest.Missing(t, "a Docker engine", err)
	}
	return c
}

func ctx(t testing.TB) context.Context {
	c, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return c
}

// importImage makes an image of a few folders and one file, without a registry.
func importImage(t testing.TB, c *client.Client, ref string, changes ...string) {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, dir := range append(hardening.MountPoints(), "/var", "/root", "/usr", "/opt") {
		must(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(dir, "/") + "/", Mode: 0o777}))
	}
	must(t, w.Close())
	answer, err := c.ImageImport(ctx(t), client.ImageImportSource{Source: &archive, SourceName: "-"}, ref, client.ImageImportOptions{Changes: changes})
	must(t, err)
	_, err = io.Copy(io.Discard, answer)
	must(t, err)
	must(t, answer.Close())
	t.Cleanup(func() {
		_, err := c.ImageRemove(ctx(t), ref, client.ImageRemoveOptions{Force: true, PruneChildren: true})
		must(t, err)
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newDriver(t testing.TB, root string) *docker.Driver {
	t.Helper()
	d, err := docker.New(docker.Options{
		Root:  root,
		Probe: drivertest.Program(t),
		Log:   slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	must(t, err)
	return d
}

func harness(t *testing.T, runtime string) drivertest.Harness {
	t.Helper()
	c := engine(t)
	info, err := c.Info(ctx(t), client.InfoOptions{})
	must(t, err)
	if _, ok := info.Info.Runtimes[runtime]; !ok {
		drivertest.Missing(t, "the engine's runtime "+runtime, "it is not registered")
	}
	image := "skerry/drivertest-" + runtime + ":1"
	importImage(t, c, image, "LABEL from.image=1", "LABEL color=image", "ENV FROM_IMAGE=1", "ENV PATH=/image")
	root := t.TempDir()
	must(t, os.Chmod(root, 0o755))
	return drivertest.Harness{
		New:          func(t testing.TB) driver.Driver { return newDriver(t, root) },
		Runtime:      runtime,
		Image:        image,
		UnknownImage: "skerry/no-such-image:1",
		PID: func(t testing.TB, id sandbox.ID) int {
			t.Helper()
			got, err := c.ContainerInspect(ctx(t), string(id), client.ContainerInspectOptions{})
			must(t, err)
			return got.Container.State.Pid
		},
		Kill: func(t testing.TB, id sandbox.ID) {
			t.Helper()
			_, err := c.ContainerKill(ctx(t), string(id), client.ContainerKillOptions{Signal: "KILL"})
			must(t, err)
		},
	}
}

func TestConformance(t *testing.T) {
	for _, runtime := range drivertest.Runtimes("runc", "runsc") {
		t.Run(runtime, func(t *testing.T) {
			drivertest.Run(t, harness(t, runtime))
		})
	}
}
