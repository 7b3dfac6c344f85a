// Package template reads sandbox-templates/*.yaml: what kinds of sandbox there are, each with its
// image, limits and languages. Every problem of every file is named at once, with its line.
package template

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// Template is one file. Sizes are text in it ("512MiB"), and numbers here.
type Template struct {
	Name        string   `yaml:"name"`
	Description string   `yaml:"description"`
	Image       Image    `yaml:"image"`
	Runtime     string   `yaml:"runtime"`
	Languages   []string `yaml:"languages"`
	IdleSeconds int      `yaml:"idle_timeout_s"`
	Limits      Limits   `yaml:"limits"`
}

// Image names the root file system, once for each kind of driver.
type Image struct {
	Docker string `yaml:"docker"` // a reference
	OCI    string `yaml:"oci"`    // a folder below the images folder; "host" is the host's own /usr
}

// Limits are the limits of a template.
type Limits struct {
	Memory    Size  `yaml:"memory"`
	CPU       Cores `yaml:"cpu"`
	PIDs      int64 `yaml:"pids"`
	OpenFiles int64 `yaml:"open_files"`
	FileSize  Size  `yaml:"file_size"`
	Tmp       Size  `yaml:"tmp"`
	Disk      Size  `yaml:"disk"`
}

// Size is a number of bytes, written as 4096, 64KiB, 512MiB or 2GiB.
type Size int64

var units = []struct {
	suffix string
	bytes  int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"", 1}}

// UnmarshalYAML reads a size.
func (s *Size) UnmarshalYAML(n *yaml.Node) error {
	for _, u := range units {
		digits, ok := strings.CutSuffix(n.Value, u.suffix)
		if !ok {
			continue
		}
		v, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || v < 0 || v > 1<<50/u.bytes {
			break
		}
		*s = Size(v * u.bytes)
		return nil
	}
	return fmt.Errorf("line %d: %.40q is not a size such as 512MiB", n.Line, n.Value)
}

// Cores is CPU time in thousandths of a core, written as 500m, 2000m or 2.
type Cores int64

// UnmarshalYAML reads a number of cores.
func (c *Cores) UnmarshalYAML(n *yaml.Node) error {
	digits, milli := strings.CutSuffix(n.Value, "m")
	v, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || v < 0 {
		return fmt.Errorf("line %d: %.40q is not an amount of CPU such as 2000m", n.Line, n.Value)
	}
	if !milli {
		v *= 1000
	}
	*c = Cores(v)
	return nil
}

const maxFile = 64 << 10

// Load reads every *.yaml of a folder.
func Load(dir fs.FS) ([]Template, error) {
	names, err := fs.Glob(dir, "*.yaml")
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, errors.New("templates: there is no *.yaml in the folder")
	}
	var all []Template
	var errs []error
	byName := map[string]string{}
	for _, name := range names {
		text, err := fs.ReadFile(dir, name)
		if err != nil {
			errs = append(errs, fmt.Errorf("template: %w", err))
			continue
		}
		t, err := Parse(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("template %s: %w", name, err))
			continue
		}
		if other, taken := byName[t.Name]; taken {
			errs = append(errs, fmt.Errorf("template %s: the name %q is that of %s", name, t.Name, other))
		}
		byName[t.Name] = name
		all = append(all, t)
	}
	return all, errors.Join(errs...)
}

// Parse reads one file.
func Parse(text []byte) (Template, error) {
	var t Template
	if len(text) > maxFile {
		return t, fmt.Errorf("larger than %d bytes", maxFile)
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&t); err != nil {
		return t, err
	}
	return t, t.check()
}

var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

func (t *Template) check() error {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...)))
	}
	if !namePattern.MatchString(t.Name) {
		bad("name", "%.80q: use a-z, 0-9 and -", t.Name)
	}
	if t.Image.Docker == "" && t.Image.OCI == "" {
		bad("image", "name one for docker, for oci, or both")
	}
	if t.Image.OCI != "" && !namePattern.MatchString(t.Image.OCI) {
		bad("image.oci", "%.80q: use a-z, 0-9 and -", t.Image.OCI)
	}
	if t.Runtime != "runc" && t.Runtime != "runsc" {
		bad("runtime", "%.40q: want runc or runsc", t.Runtime)
	}
	for _, l := range t.Languages {
		if !slices.Contains([]string{"typescript", "javascript", "python", "bash"}, l) {
			bad("languages", "%.40q: want typescript, javascript, python or bash", l)
		}
	}
	if t.IdleSeconds < 0 {
		bad("idle_timeout_s", "is negative")
	}
	for _, l := range []struct {
		field    string
		v, least int64
	}{
		{"memory", int64(t.Limits.Memory), 16 << 20}, {"cpu", int64(t.Limits.CPU), 10}, {"pids", t.Limits.PIDs, 8},
		{"open_files", t.Limits.OpenFiles, 32}, {"file_size", int64(t.Limits.FileSize), 1 << 20},
		{"tmp", int64(t.Limits.Tmp), 1 << 20}, {"disk", int64(t.Limits.Disk), 1 << 20},
	} {
		if l.v < l.least {
			bad("limits."+l.field, "%d is less than %d; every limit must be set", l.v, l.least)
		}
	}
	return errors.Join(errs...)
}

// Vocabulary is the template as the rest of Skerry knows it.
func (t *Template) Vocabulary() sandbox.Template {
	return sandbox.Template{
		Name: t.Name, Description: t.Description, Runtime: t.Runtime, Languages: t.Languages, IdleSeconds: t.IdleSeconds,
		Limits: sandbox.Limits{
			MemoryBytes: int64(t.Limits.Memory), CPUMillis: int64(t.Limits.CPU), PIDs: t.Limits.PIDs, OpenFiles: t.Limits.OpenFiles,
			FileBytes: int64(t.Limits.FileSize), TmpBytes: int64(t.Limits.Tmp), DiskBytes: int64(t.Limits.Disk),
		},
	}
}

// ImageFor is what sandbox.Spec.Image wants: a folder where the driver unpacks nothing by itself
// (hostRootfs), else a reference. ok is false when the template has none for that driver.
func (t *Template) ImageFor(hostRootfs bool, imagesDir string) (image string, ok bool) {
	switch {
	case !hostRootfs:
		return t.Image.Docker, t.Image.Docker != ""
	case t.Image.OCI == "host":
		return "", true
	default:
		return filepath.Join(imagesDir, t.Image.OCI, "rootfs"), t.Image.OCI != ""
	}
}
