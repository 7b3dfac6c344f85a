// Package template reads sandbox-templates/*.yaml: what kinds of sandbox there are, each with its
// image, limits and languages. Every problem of every file is named at once, with its line and field.
package template

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Template is one file. Sizes are text in it ("512MiB"), and numbers here.
type Template struct {
	Name        string
	Description string
	Image       Image
	Runtime     string // "runc" or "runsc"
	Languages   []string
	IdleSeconds int // idle_timeout_s; 0 = never hibernated for idleness
	MaxAge      int // max_age_s; 0 = what the configuration says
	Limits      Limits
	JavaScript  string                   // "bun", "deno", "node", or "" for the first that is there
	Deno        *sandbox.DenoPermissions // nil: all
	Wasm        *sandbox.Wasm            // nil: the defaults
	Loosen      []string                 // points of the hardening that are taken back: see sandbox.Loosenings
	// Env, Interpreters and Smoke: see sandbox.Template.
	Env          map[string]string
	Interpreters map[string]sandbox.Interpreter
	Smoke        []sandbox.SmokeTest
	Pool         *sandbox.Pool // nil: none
	ClaimPool    string        // kubernetes.claim.pool: see sandbox.Spec; "": none
}

// Image names the root file system, once for each kind of driver.
type Image struct {
	Docker     string // a reference
	Kubernetes string // a reference; "": Docker's
	Remote     string // a template of the service whose sandboxes they are; "": what the configuration says
	OCI        string // a folder below the images folder; HostImage is the host's own /usr
}

// HostImage in Image.OCI stands for the host's own /usr, read-only, in place of an image.
const HostImage = "host"

// Limits are the limits of a template. One that the file does not say is that of the template base.
type Limits struct {
	Memory    Size
	CPU       Cores
	PIDs      int64
	OpenFiles int64
	FileSize  Size
	Tmp       Size
	Disk      Size
}

// Size is a number of bytes, written as 4096, 64KiB, 512MiB, 2GiB or 1TiB.
type Size int64

// Cores is CPU time in thousandths of a core, written as 500m, 2000m or 2.
type Cores int64

// Load reads every *.yaml of a folder, sorted by file name. A template may extend another one of the folder, or of
// those in more. The error names every problem of every file ("template base.yaml: line 8: limits.memory: …").
func Load(dir fs.FS, more ...fs.FS) ([]Template, error) {
	names, err := fs.Glob(dir, "*.yaml")
	if err != nil {
		return nil, fmt.Errorf("templates: %w", err)
	}
	if len(names) == 0 {
		return nil, errors.New("templates: there is no *.yaml in the folder")
	}
	var all []Template
	var errs []error
	byName := map[string]string{}
	family := newFamily(append([]fs.FS{dir}, more...))
	for _, name := range names {
		t, err := family.load(dir, name)
		if err != nil {
			errs = append(errs, inFile(name, err)...)
			continue
		}
		if other, taken := byName[t.Name]; taken {
			errs = append(errs, fmt.Errorf("template %s: the name %q is that of %s", name, t.Name, other))
			continue
		}
		byName[t.Name] = name
		all = append(all, t)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return all, nil
}

func readFile(dir fs.FS, name string) ([]byte, error) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// inFile puts the file's name before each of the problems in err.
func inFile(name string, err error) []error {
	problems := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		problems = joined.Unwrap()
	}
	named := make([]error, len(problems))
	for i, problem := range problems {
		named[i] = fmt.Errorf("template %s: %w", name, problem)
	}
	return named
}

// maxDescription bounds a description, in bytes: it is shown in lists.
const maxDescription = 1000

var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// check reports what was read well and still cannot be right.
func (p *parser) check(t *Template) {
	bad := p.wrong
	bad(!namePattern.MatchString(t.Name), "name", "%.80q: use 1 to 63 of a-z, 0-9 and -", t.Name)
	bad(t.Image == Image{}, "image", "name one for docker, kubernetes, remote or oci, or for several")
	bad(t.Image.OCI != "" && !namePattern.MatchString(t.Image.OCI), "image.oci", "%.80q: use 1 to 63 of a-z, 0-9 and -", t.Image.OCI)
	bad(t.Runtime != "runc" && t.Runtime != "runsc", "runtime", "%.40q: want runc or runsc", t.Runtime)
	bad(len(t.Languages) == 0, "languages", "name at least one")
	for i, l := range t.Languages {
		known := slices.Contains(sandbox.Languages, l)
		field := fmt.Sprintf("languages[%d]", i)
		bad(!known, field, "%.40q: want typescript, javascript, python, bash or wasm", l)
		bad(slices.Contains(t.Languages[:i], l), field, "%.40q is there twice", l)
	}
	for i, name := range t.Loosen {
		field := fmt.Sprintf("loosen[%d]", i)
		err := sandbox.CheckLoosening(sandbox.Loosening(name), t.Runtime)
		var why *sandbox.Error
		bad(errors.As(err, &why), field, "%s", detail(why))
		bad(slices.Contains(t.Loosen[:i], name), field, "%.40q is there twice", name)
	}
	p.checkEnv(t)
	p.checkInterpreters(t)
	p.checkSmoke(t)
	p.checkPool(t)
	p.checkClaim(t)
	p.checkWasm(t)
	bad(!slices.Contains([]string{"", "bun", "deno", "node"}, t.JavaScript), "javascript", "%.40q: want bun, deno or node", t.JavaScript)
	bad(t.Deno != nil && t.JavaScript != "deno", "deno", "is for javascript: deno")
	if d := t.Deno; d != nil {
		for name, list := range map[string][]string{"allow_read": d.Read, "allow_write": d.Write, "allow_net": d.Net, "allow_env": d.Env, "allow_run": d.Run} {
			for i, v := range list {
				bad(v == "" || strings.ContainsAny(v, ",\x00"), fmt.Sprintf("deno.%s[%d]", name, i), "%.80q: want one entry, without a comma", v)
			}
		}
	}
	bad(t.IdleSeconds < 0, "idle_timeout_s", "is negative: want seconds, or 0 for never")
	bad(len(t.Description) > maxDescription, "description", "%d bytes, at most %d", len(t.Description), maxDescription)
	bad(t.MaxAge < 0, "max_age_s", "is negative: want seconds, or 0 for what the server says")
	for _, l := range []struct {
		field    string
		v, least int64
	}{
		{"memory", int64(t.Limits.Memory), 16 << 20}, {"cpu", int64(t.Limits.CPU), 10}, {"pids", t.Limits.PIDs, 8},
		{"open_files", t.Limits.OpenFiles, 32}, {"file_size", int64(t.Limits.FileSize), 1 << 20},
		{"tmp", int64(t.Limits.Tmp), 1 << 20}, {"disk", int64(t.Limits.Disk), 1 << 20},
	} {
		field := "limits." + l.field
		_, there := p.seen[field]
		bad(there && l.v < l.least, field, "%d is less than %d", l.v, l.least)
	}
}

func detail(e *sandbox.Error) string {
	if e == nil {
		return ""
	}
	return e.Detail
}

// Vocabulary is the template as the rest of Skerry knows it. Image stays empty: see ImageFor.
func (t *Template) Vocabulary() sandbox.Template {
	var loosened []sandbox.Loosening
	for _, name := range t.Loosen {
		loosened = append(loosened, sandbox.Loosening(name))
	}
	return sandbox.Template{
		Name: t.Name, Description: t.Description, Runtime: t.Runtime, Languages: t.Languages, IdleSeconds: t.IdleSeconds, MaxAgeSeconds: t.MaxAge,
		Loosened: loosened, JavaScript: t.JavaScript, Deno: t.Deno, Wasm: t.Wasm, Env: t.Env, Interpreters: t.Interpreters, Smoke: t.Smoke, Pool: t.Pool, ClaimPool: t.ClaimPool,
		Limits: sandbox.Limits{
			MemoryBytes: int64(t.Limits.Memory), CPUMillis: int64(t.Limits.CPU), PIDs: t.Limits.PIDs, OpenFiles: t.Limits.OpenFiles,
			FileBytes: int64(t.Limits.FileSize), TmpBytes: int64(t.Limits.Tmp), DiskBytes: int64(t.Limits.Disk),
		},
	}
}

// Home is where a driver has its images.
type Home int

// Homes of images.
const (
	InEngine  Home = iota // a container engine on this host
	InCluster             // nodes of a cluster, which pull them
	AtService             // the service whose sandboxes they are
	InFolder              // folders of this host, into which the driver unpacks archives
)

// ImageFor is what sandbox.Spec.Image wants: a folder or a reference. ok is false when the template has none for drivers
// whose images are at home there.
func (t *Template) ImageFor(home Home, imagesDir string) (image string, ok bool) {
	switch {
	case home == AtService:
		return t.Image.Remote, true // "": what the configuration says
	case home == InCluster:
		image = cmp.Or(t.Image.Kubernetes, t.Image.Docker)
		return image, image != ""
	case home == InEngine:
		return t.Image.Docker, t.Image.Docker != ""
	case t.Image.OCI == HostImage:
		return "", true
	default:
		return filepath.Join(imagesDir, t.Image.OCI, "rootfs"), t.Image.OCI != ""
	}
}

// ImageSources are the places where an image may lie on this host, the best first: an archive, and an
// unpacked one, in the folder that the oci driver uses too. None is there for the host's own /usr.
func (t *Template) ImageSources(imagesDir string) []string {
	if t.Image.OCI == "" || t.Image.OCI == HostImage {
		return nil
	}
	dir := filepath.Join(imagesDir, t.Image.OCI)
	return []string{filepath.Join(dir, "image.tar"), filepath.Join(dir, "rootfs")}
}
