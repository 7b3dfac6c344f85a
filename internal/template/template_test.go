package template

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
	sandboxtemplates "github.com/skerry-sandbox/skerry/sandbox-templates"
)

func TestBuiltInTemplates(t *testing.T) {
	all, err := Load(sandboxtemplates.FS)
	if err != nil || len(all) == 0 {
		t.Fatalf("%v, %v", all, err)
	}
	v := all[0].Vocabulary()
	if v.Name != "base" || v.Limits.MemoryBytes != 1<<30 || v.Limits.CPUMillis != 2000 || v.Limits.DiskBytes != 2<<30 {
		t.Errorf("%+v", v)
	}
	if v.IdleSeconds != 900 || len(v.Languages) != 5 || v.Runtime != "runc" || v.Limits.PIDs != 512 || v.Limits.OpenFiles != 4096 {
		t.Errorf("%+v", v)
	}
	if v.Limits.FileBytes != 1<<30 || v.Limits.TmpBytes != 256<<20 {
		t.Errorf("%+v", v.Limits)
	}
}

func TestImageFor(t *testing.T) {
	both := Template{Image: Image{Docker: "skerry/base:latest", OCI: "base"}}
	host := Template{Image: Image{OCI: HostImage}}
	cluster := Template{Image: Image{Docker: "a", Kubernetes: "registry/a@sha256:1"}}
	for _, c := range []struct {
		t     *Template
		home  Home
		image string
		ok    bool
	}{
		{&both, InFolder, "/images/base/rootfs", true}, {&both, InEngine, "skerry/base:latest", true}, {&both, InCluster, "skerry/base:latest", true},
		{&host, InFolder, "", true}, {&host, InEngine, "", false}, {&host, InCluster, "", false},
		{&Template{Image: Image{Docker: "a"}}, InFolder, "/images/rootfs", false},
		{&cluster, InCluster, "registry/a@sha256:1", true}, {&cluster, InEngine, "a", true},
		{&Template{Image: Image{Kubernetes: "k"}}, InEngine, "", false},
		{&Template{Image: Image{Remote: "desktop"}}, AtService, "desktop", true}, {&host, AtService, "", true},
	} {
		image, ok := c.t.ImageFor(c.home, "/images")
		if ok != c.ok || ok && image != c.image {
			t.Errorf("%+v at home in %d: %q %t, want %q %t", c.t.Image, c.home, image, ok, c.image, c.ok)
		}
	}
}

func TestImageSources(t *testing.T) {
	for image, want := range map[Image]string{
		{Docker: "a", OCI: "base"}:    "/images/base/image.tar /images/base/rootfs",
		{Docker: "a", OCI: HostImage}: "",
		{Docker: "a"}:                 "",
	} {
		if got := strings.Join((&Template{Image: image}).ImageSources("/images"), " "); got != want {
			t.Errorf("%+v: %q, want %q", image, got, want)
		}
	}
}

const good = `name: x
image: {docker: a, oci: host}
languages: [bash]
runtime: runc
limits: {memory: 64MiB, cpu: "1", pids: 10, open_files: 100, file_size: 1MiB, tmp: 1MiB, disk: 1048576}
`

// py is good with Python.
var py = strings.Replace(good, "[bash]", "[bash, python]", 1)

// ts is good with TypeScript.
var ts = strings.Replace(good, "[bash]", "[bash, typescript]", 1)

func TestRuns(t *testing.T) {
	got, err := Parse([]byte(py + `env: {MPLBACKEND: Agg}
interpreters: {python: {preload: [numpy, a.b]}}
smoke:
- {name: shell, run: "id -u", exit_code: 3, timeout_s: 5}
- {name: text, code: "print(1)", language: python, expect: "1"}
`))
	if err != nil {
		t.Fatal(err)
	}
	v := got.Vocabulary()
	if v.Env["MPLBACKEND"] != "Agg" || v.Interpreters["python"].Warm != 1 || strings.Join(v.Interpreters["python"].Preload, " ") != "numpy a.b" {
		t.Errorf("%+v", v)
	}
	if len(v.Smoke) != 2 || v.Smoke[0].ExitCode != 3 || v.Smoke[0].TimeoutSeconds != 5 || v.Smoke[1].TimeoutSeconds != 60 || v.Smoke[1].Expect != "1" {
		t.Errorf("%+v", v.Smoke)
	}
}

func TestDeno(t *testing.T) {
	got, err := Parse([]byte(good + "javascript: deno\ndeno: {allow_read: [/mnt], allow_net: []}\n"))
	if err != nil {
		t.Fatal(err)
	}
	v := got.Vocabulary()
	if v.JavaScript != "deno" || v.Deno == nil || len(v.Deno.Read) != 1 || len(v.Deno.Net) != 0 {
		t.Errorf("%+v %+v", v, v.Deno)
	}
}

func TestWasm(t *testing.T) {
	for text, want := range map[string]sandbox.Wasm{"": {MemoryBytes: 32 << 20}, "wasm: {cpu_s: 7}\n": {MemoryBytes: 32 << 20, CPUSeconds: 7}, "wasm: {memory: 64MiB}\n": {MemoryBytes: 64 << 20}} {
		got, err := Parse([]byte(good + text))
		if err != nil {
			t.Fatal(err)
		}
		v := got.Vocabulary()
		if v.WasmMemory() != want.MemoryBytes || (v.Wasm != nil && v.Wasm.CPUSeconds != want.CPUSeconds) {
			t.Errorf("%s: %d, %+v", text, v.WasmMemory(), v.Wasm)
		}
	}
	large := sandbox.Template{Limits: sandbox.Limits{MemoryBytes: 64 << 30}}
	if large.WasmMemory() != 4<<30 {
		t.Errorf("of 64 GiB: %d", large.WasmMemory())
	}
}

func TestGood(t *testing.T) {
	got, err := Parse([]byte(good))
	if err != nil || got.Limits.Memory != 64<<20 || got.Limits.CPU != 1000 || got.Limits.Disk != 1<<20 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestProblemsAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		strings.Replace(good, "64MiB", "64MB", 1):                            `line 5: limits.memory: "64MB" is not a size such as 512MiB`,
		strings.Replace(good, "64MiB", "1MiB", 1):                            "line 5: limits.memory: 1048576 is less than 16777216",
		strings.Replace(good, "64MiB", "-64MiB", 1):                          `line 5: limits.memory: "-64MiB" is not a size such as 512MiB`,
		strings.Replace(good, "64MiB", "99999999999TiB", 1):                  `line 5: limits.memory: "99999999999TiB" is not a size such as 512MiB`,
		strings.Replace(good, "64MiB", "[1]", 1):                             "line 5: limits.memory: want one value, not a list, a mapping or nothing",
		strings.Replace(good, "64MiB", "", 1):                                "line 5: limits.memory: want one value, not a list, a mapping or nothing",
		strings.Replace(good, `cpu: "1"`, "cpu: fast", 1):                    `line 5: limits.cpu: "fast" is not an amount of CPU such as 2000m`,
		strings.Replace(good, "pids: 10", "pids: 0", 1):                      "line 5: limits.pids: 0 is less than 8",
		good + "extends: base\n":                                             "line 6: extends: there is no other template here",
		strings.Replace(good, "pids: 10", "pids: ten", 1):                    `line 5: limits.pids: "ten" is not a whole number`,
		strings.Replace(good, "pids: 10", "pids: 10, pids: 11", 1):           "line 5: limits.pids: is there twice",
		strings.Replace(good, "runc", "crun", 1):                             `line 4: runtime: "crun": want runc or runsc`,
		strings.Replace(good, "name: x", "name: X Y", 1):                     `line 1: name: "X Y": use 1 to 63 of a-z, 0-9 and -`,
		strings.Replace(good, "[bash]", "[cobol]", 1):                        `line 3: languages[0]: "cobol": want typescript, javascript, python, bash or wasm`,
		strings.Replace(good, "[bash]", "[bash, bash]", 1):                   `line 3: languages[1]: "bash" is there twice`,
		strings.Replace(good, "[bash]", "bash", 1):                           "line 3: languages: want a list, such as [a, b]",
		strings.Replace(good, "docker: a, oci: host", "oci: ../../etc", 1):   `line 2: image.oci: "../../etc": use 1 to 63 of a-z, 0-9 and -`,
		strings.Replace(good, "{docker: a, oci: host}", "a", 1):              "line 2: image: want a mapping with docker, kubernetes, oci, remote",
		strings.Replace(good, "name: x", "name: x\nnombre: y", 1):            "line 2: nombre: there is no such field; want deno, description, env, extends, idle_timeout_s, image, interpreters, javascript, kubernetes, languages, limits, loosen, max_age_s, name, pool, runtime, smoke, wasm",
		strings.Replace(good, "runc", "&r runc\ndescription: *r", 1):         "line 5: description: aliases are not supported",
		good + "javascript: rhino\n":                                         `line 6: javascript: "rhino": want bun, deno or node`,
		good + "deno: {allow_net: [a.example]}\n":                            "line 6: deno: is for javascript: deno",
		good + "javascript: deno\ndeno: {allow: [x]}\n":                      "line 7: deno.allow: there is no such field; want allow_env, allow_net, allow_read, allow_run, allow_write",
		good + "javascript: deno\ndeno: {allow_read: [\"a,b\"]}\n":           `line 7: deno.allow_read[0]: "a,b": want one entry, without a comma`,
		good + "wasm: {memory: 65MiB}\n":                                     "line 6: wasm.memory: 68157440 is more than limits.memory",
		good + "wasm: {memory: 1KiB}\n":                                      "line 6: wasm.memory: 1024: want 1MiB to 4GiB",
		good + "wasm: {cpu_s: 0}\n":                                          "line 6: wasm.cpu_s: 0: want 1 to 3600 seconds",
		good + "wasm: {fuel: 1}\n":                                           "line 6: wasm.fuel: there is no such field; want cpu_s, memory",
		good + "wasm: 1\n":                                                   "line 6: wasm: want a mapping with cpu_s, memory",
		good + "idle_timeout_s: -1\n":                                        "line 6: idle_timeout_s: is negative: want seconds, or 0 for never",
		good + "---\nname: y\n":                                              "line 6: a second document; one file holds one template",
		"":                                                                   "is empty",
		"- a\n":                                                              "line 1: want a mapping with name and image",
		good + "limit: {}\n":                                                 "line 6: limit: there is no such field; did you mean limits?",
		strings.Replace(good, "pids", "pid", 1):                              "line 5: limits.pid: there is no such field; did you mean pids?",
		good + "description: \x01\n":                                         "line 6: a character that no YAML may have: want plain text in UTF-8",
		good + "description: \xff\n":                                         "line 6: a character that no YAML may have: want plain text in UTF-8",
		good + "description: a: b\n":                                         "yaml: line 6: mapping values are not allowed in this context",
		good + "loosen: [privileged]\n":                                      `line 6: loosen[0]: "privileged" cannot be loosened: want one of core_dumps, large_shm, seccomp.namespaces, seccomp.ptrace`,
		good + "loosen:\n- large_shm\n- large_shm\n":                         `line 8: loosen[1]: "large_shm" is there twice`,
		strings.Replace(good, "runc", "runsc", 1) + "loosen: [core_dumps]\n": "line 6: loosen[0]: core_dumps: the kernel of runsc makes no core dumps",
		good + "loosen: all\n":                                               "line 6: loosen: want a list, such as [a, b]",
		good + "env: [A]\n":                                                  "line 6: env: want a mapping, such as {NAME: value}",
		good + "env:\n  A: 1\n  B-C: 2\n":                                    "line 8: env.B-C: a name of a variable has only letters, digits and _, and begins with no digit",
		good + "env:\n  A: [1]\n":                                            "line 7: env.A: want one value, not a list, a mapping or nothing",
		good + "env:\n  A: 1\n  A: 2\n":                                      "line 8: env.A: is there twice",
		good + "env: {SKERRY_X: 1}\n":                                        "line 6: env.SKERRY_X: is set by Skerry: choose a name without SKERRY_ or MCP_ in front",
		good + "interpreters: {bash: {}}\n":                                  "line 6: interpreters.bash: no interpreter of that waits for its program; those of python, typescript and javascript do",
		ts + "interpreters: {typescript: {preload: [a]}}\n":                  "line 6: interpreters.typescript.preload: is for python: modules of JavaScript are imported by the program",
		ts + "javascript: deno\ndeno: {}\ninterpreters: {typescript: {}}\n":  "line 8: interpreters.typescript.warm: 1: with deno's own permissions none can wait: leave it away",
		good + "interpreters: {python: {warm: 1}}\n":                         "line 6: interpreters.python: is not among the languages",
		py + "interpreters:\n  python: {warm: 5}\n":                          "line 7: interpreters.python.warm: 5: want 1 to 4, or 0 for none",
		py + "interpreters:\n  python:\n    prelaod: [x]\n":                  "line 8: interpreters.python.prelaod: there is no such field; did you mean preload?",
		py + "interpreters: {python: {preload: [a, b-c]}}\n":                 `line 6: interpreters.python.preload[1]: "b-c": want the name of a module, such as numpy`,
		py + "interpreters: {python: {warm: 0, preload: [a]}}":               "line 6: interpreters.python.preload: needs warm: 1, because it is loaded while one waits",
		good + "smoke: {}\n":                                                 `line 6: smoke: want a list, such as [{name: starts, run: "true"}]`,
		good + "smoke:\n- name: a\n":                                         "line 7: smoke[0]: want exactly one of run (for the shell), argv (without one) and code",
		good + "smoke:\n- name: a\n  run: x\n  argv: [x]\n":                  "line 7: smoke[0]: want exactly one of run (for the shell), argv (without one) and code",
		good + "smoke:\n- run: x\n":                                          "line 7: smoke[0].name: want a name of at most 100 bytes",
		good + "smoke:\n- {name: a, run: x}\n- {name: a, run: x}\n":          `line 8: smoke[1].name: "a" is there twice`,
		good + "smoke:\n- {name: a, code: x}\n":                              "line 7: smoke[0].language: goes with code, and only with it",
		good + "smoke:\n- {name: a, code: x, language: python}\n":            `line 7: smoke[0].language: "python" is not among the languages`,
		good + "smoke:\n- name: a\n  run: x\n  timeout_s: 500\n":             "line 9: smoke[0].timeout_s: 500: want 1 to 120 seconds",
		good + "smoke:\n- name: a\n  run: x\n  exit_code: -1\n":              "line 9: smoke[0].exit_code: -1: want 0 to 255",
		good + "smoke:\n- name: a\n  argv:\n  - x\n  - [y]\n":                "line 10: smoke[0].argv[1]: want one value, not a list, a mapping or nothing",
		good + "pool: 3\n":                                                   "line 6: pool: want a mapping with burst, max_age_s, min, target",
		good + "pool: {min: 1}\n":                                            "line 6: pool.target: is missing: say how many sandboxes wait, or 0 for none",
		good + "pool: {targte: 1}\n":                                         "line 6: pool.targte: there is no such field; did you mean target?\nline 6: pool.target: is missing: say how many sandboxes wait, or 0 for none",
		good + "pool: {target: -1}\n":                                        "line 6: pool.target: -1: want 0 to 1000",
		good + "pool: {target: many}\n":                                      `line 6: pool.target: "many" is not a whole number`,
		good + "pool:\n  target: 2\n  min: 3\n":                              "line 8: pool.min: 3: want 0 to 2, the target",
		good + "pool:\n  target: 2\n  burst: 0\n":                            "line 8: pool.burst: 0: want 1 to 32",
		good + "pool:\n  target: 2\n  max_age_s: 0\n":                        "line 8: pool.max_age_s: 0: want 1 to 604800 seconds",
		good + "kubernetes: {claim: {pool: A_b}}\n":                          `line 6: kubernetes.claim.pool: "A_b": want the name of a SandboxWarmPool, 1 to 63 of a-z, 0-9 and -`,
		good + "kubernetes: {claim: {}}\n":                                   `line 6: kubernetes.claim.pool: "": want the name of a SandboxWarmPool, 1 to 63 of a-z, 0-9 and -`,
		good + "kubernetes: {pool: x}\n":                                     "line 6: kubernetes.pool: there is no such field; want claim\nline 6: kubernetes.claim.pool: \"\": want the name of a SandboxWarmPool, 1 to 63 of a-z, 0-9 and -",
		good + "pool: {target: 2}\nkubernetes: {claim: {pool: x}}\n":         "line 7: kubernetes.claim.pool: there is a pool, too: sandboxes wait in one of both",
		strings.Repeat("#", maxFile+1):                                       "larger than 65536 bytes",
	} {
		_, err := Parse([]byte(text))
		if err == nil || err.Error() != want {
			t.Errorf("%.300s\n got: %v\nwant: %s", text, err, want)
		}
	}
}

// TestTwoFields: a name and an image are enough, and what is not said is safe.
func TestTwoFields(t *testing.T) {
	got, err := Parse([]byte("name: x\nimage: {docker: a}\n"))
	if err != nil || got.IdleSeconds != 900 || got.Runtime != "runc" || len(got.Languages) == 0 || got.Limits.PIDs != 512 || got.Limits.Disk != 2<<30 {
		t.Errorf("%+v %v", got, err)
	}
	if got, err = Parse([]byte("name: x\nimage: {docker: a}\nidle_timeout_s: 0\n")); err != nil || got.IdleSeconds != 0 {
		t.Errorf("0 is never: %+v %v", got, err)
	}
	base, err := Load(os.DirFS("../../sandbox-templates"))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range base {
		if d := defaults(); b.Name == "base" && (b.Limits != d.Limits || b.IdleSeconds != d.IdleSeconds || b.Runtime != d.Runtime) {
			t.Errorf("the defaults are not those of base: %+v", b)
		}
	}
}

// TestExtends: a template has what the other one has, but for its own words. Circles are told.
func TestExtends(t *testing.T) {
	more := fstest.MapFS{"b.yaml": {Data: []byte("name: base\ndescription: d\nimage: {docker: base, oci: base}\nenv: {A: b}\nlimits: {memory: 3GiB}\nlanguages: [python]\nsmoke:\n- {name: a, code: x, language: python}\n")}}
	load := func(text string) (Template, error) {
		list, err := Load(fstest.MapFS{"a.yaml": {Data: []byte(text)}}, more)
		if err != nil {
			return Template{}, err
		}
		return list[0], nil
	}
	got, err := load("name: a\nextends: base\nlimits: {pids: 99}\n")
	if err != nil || got.Name != "a" || got.Description != "" || got.Image.OCI != "base" || got.Env["A"] != "b" || got.Limits.Memory != 3<<30 || got.Limits.PIDs != 99 || len(got.Smoke) != 1 {
		t.Errorf("%+v %v", got, err)
	}
	got, err = load("name: a\nextends: base\nimage: {docker: other}\nenv: {C: d}\nlanguages: [bash]\n")
	if err != nil || got.Image != (Image{Docker: "other"}) || len(got.Env) != 1 || len(got.Languages) != 1 || len(got.Smoke) != 0 {
		t.Errorf("%+v %v", got, err)
	}
	for text, says := range map[string]string{"name: a\nextends: none\n": "there is no such template", "name: a\nextends: a\n": "it has problems of its own", "name: a\nextends: [base]\n": "extends"} {
		if _, err := load(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	broken := "name: X\nruntime: crun\nlimits:\n  memory: much\n  pids: 1\n  swap: 1GiB\n"
	_, err := Load(fstest.MapFS{"a.yaml": {Data: []byte(broken)}, "b.yaml": {Data: []byte("name: [\n")}, "c.yaml": {Data: []byte(good)}, "d.yaml": {Data: []byte(good)}})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"template a.yaml: line 1: name:", "template a.yaml: line 1: image:", "template a.yaml: line 2: runtime:",
		"template a.yaml: line 4: limits.memory:", "template a.yaml: line 5: limits.pids:", "template a.yaml: line 6: limits.swap:",
		"template b.yaml: ", `template d.yaml: the name "x" is that of c.yaml`,
	} {
		if strings.Count(err.Error(), want) != 1 {
			t.Errorf("not there exactly once: %q in\n%v", want, err)
		}
	}
	if _, err := Load(fstest.MapFS{}); err == nil {
		t.Error("an empty folder was taken")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(good)
	for _, name := range []string{"base.yaml", "browser.yaml", "data.yaml", "office.yaml"} {
		text, err := sandboxtemplates.FS.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("limits: &a {memory: *a}\n---\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := Parse([]byte(text))
		if err != nil {
			return
		}
		l := got.Limits
		if l.Memory < 16<<20 || l.CPU < 10 || l.PIDs < 8 || l.OpenFiles < 32 || l.FileSize < 1 || l.Tmp < 1 || l.Disk < 1 {
			t.Errorf("a template without limits was taken: %+v", got)
		}
		if image, ok := got.ImageFor(InFolder, "/images"); ok && strings.Contains(image, "..") {
			t.Errorf("image %q leaves the folder", image)
		}
	})
}

// TestPool: what is left out has its default, and no target is no pool.
func TestPool(t *testing.T) {
	for text, want := range map[string]*sandbox.Pool{
		good:                         nil,
		good + "pool: {target: 0}\n": nil,
		good + "pool: {target: 4}\n": {Target: 4, Min: 1, Burst: 2, MaxAgeSeconds: 3600},
		good + "pool: {target: 4, min: 0, burst: 3, max_age_s: 60}\n": {Target: 4, Min: 0, Burst: 3, MaxAgeSeconds: 60},
	} {
		got, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if pool := got.Vocabulary().Pool; !reflect.DeepEqual(pool, want) {
			t.Errorf("%s: %+v", text[len(good):], pool)
		}
	}
}
