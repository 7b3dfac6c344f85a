package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// staticImage makes an image that holds one static program and nothing else, not even a folder, and declares all that
// an image can declare. images is a folder of images for the drivers without Docker.
func staticImage(t *testing.T, driver string) (ref, images string) {
	t.Helper()
	// Not t.TempDir: its parents are closed to the uids of sandboxes.
	images, err := os.MkdirTemp("", "skerry-images-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(images)) })
	must(t, os.Chmod(images, 0o711)) //nolint:gosec // passed through by other uids, not listed
	must(t, os.Symlink(filepath.Join(cache(), "images/base"), filepath.Join(images, "base")))
	root := filepath.Join(images, "static/rootfs")
	must(t, os.MkdirAll(root, 0o755))
	build := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(root, "tool"), "./testdata/static")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ref = "skerry/static-" + driver + ":1" // tests of other drivers remove theirs meanwhile
	if driver == "oci" {
		return ref, images
	}
	needDriver(t, "docker", "runc") // it makes the archive for containerd, too
	packed, err := exec.Command("tar", "-C", root, "-c", "tool").Output()
	must(t, err)
	load := exec.Command("docker", "import", "--change", `ENTRYPOINT ["/tool", "fails"]`, "--change", `CMD ["x"]`, "--change", "ENV PATH=/nowhere",
		"--change", "ENV FROM_IMAGE=1", "--change", "WORKDIR /no/such/folder", "--change", "USER 4242", "--change", "VOLUME /var/data /tmp", "-", ref)
	load.Stdin = strings.NewReader(string(packed))
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("docker", "image", "rm", ref).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	if driver == "containerd" {
		if out, err := exec.Command("docker", "save", "-o", filepath.Join(images, "static/image.tar"), ref).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return ref, images
}

// TestAnyImage: an image without a shell, or any other file than its program, is a template.
func TestAnyImage(t *testing.T) {
	t.Parallel()
	onAll(t, func(t *testing.T, o options) {
		if o.runtime == "runsc" && o.driver != "oci" {
			return // what is the image's is the same for all runtimes
		}
		needDriver(t, o.driver, o.runtime)
		ref, images := staticImage(t, o.driver)
		text := strings.Replace(strings.Replace(template, "name: base", "name: static", 1), "skerry/base:latest", ref, 1)
		text = strings.Replace(strings.Replace(text, "%s", "static", 1), "%s", o.runtime, 1)
		o.templates = map[string]string{"static.yaml": text + "env: {FROM_TEMPLATE: yes}\n"}
		o.env = append(o.env, "SKERRY_IMAGES="+images)
		s := start(t, o)
		if a := s.do("PUT", "/api/threads/bare/sandbox", map[string]any{"template": "static"}); a.status != 200 {
			t.Fatalf("%d %s\n%s", a.status, a.body, s.log)
		}
		argv := func(words ...string) result { return s.run("bare", "exec", map[string]any{"argv": words}) }
		for _, c := range []struct {
			words []string
			want  string
		}{
			{[]string{"/tool", "who"}, "true /home/agent /mnt/user-data/workspace <nil> <nil>"},
			{[]string{"/tool", "write", "/mnt/user-data/outputs/a"}, "written"},
			{[]string{"/tool", "write", "/tmp/a"}, "written"}, {[]string{"/tool", "write", "/home/agent/a"}, "written"},
			{[]string{"/tool", "write", "/a"}, "refused"}, {[]string{"/tool", "write", "/tool"}, "refused"}, {[]string{"/tool", "write", "/mnt/a"}, "refused"},
			{[]string{"/tool", "env", "FROM_IMAGE"}, ""}, {[]string{"/tool", "env", "FROM_TEMPLATE"}, "yes"},
			{[]string{"/tool", "env", "PATH"}, "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		} {
			if r := argv(c.words...); strings.TrimSpace(r.Stdout) != c.want || r.ExitCode == nil || *r.ExitCode != 0 {
				t.Errorf("%v: %+v, want %q", c.words, r, c.want)
			}
		}
		// Docker cannot change an image.
		if r := argv("/tool", "write", "/var/tmp/a"); strings.TrimSpace(r.Stdout) != map[bool]string{true: "refused", false: "written"}[o.driver == "docker"] {
			t.Errorf("/var/tmp: %+v", r)
		}
		if r := argv("/tool", "write", "/var/data/a"); strings.TrimSpace(r.Stdout) != map[bool]string{true: "refused", false: "written"}[o.driver == "oci"] {
			t.Errorf("the image's volume: %+v", r)
		}
		for route, c := range map[string]struct {
			body map[string]any
			want string
		}{
			"exec":         {map[string]any{"command": "true"}, "give argv"},
			"execute_code": {map[string]any{"language": "python", "code": "1"}, "no python3"},
		} {
			a := s.do("POST", "/api/threads/bare/"+route, c.body)
			if a.code() != "not_supported" || !strings.Contains(string(a.body), c.want) {
				t.Errorf("%s: %d %s", route, a.status, a.body)
			}
		}
		if a := s.do("POST", "/api/threads/bare/execute_code", map[string]any{"code": "1"}); a.code() != "not_supported" || !strings.Contains(string(a.body), "bun, deno or node") {
			t.Errorf("%d %s", a.status, a.body)
		}
		if a := s.do("GET", "/api/threads/bare/files?path=/mnt/user-data/outputs/a", nil); a.status != 200 || !strings.Contains(string(a.body), "written") {
			t.Errorf("files: %d %s", a.status, a.body)
		}
		if a := s.do("PUT", "/api/threads/bare/files", map[string]any{"path": "/mnt/user-data/workspace/b", "content": "x"}); a.status != 201 {
			t.Errorf("files: %d %s", a.status, a.body)
		}
	})
}
