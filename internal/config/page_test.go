package config

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write docs/configuration.md and docs/skerry.example.yaml")

const (
	pageFile   = "../../docs/configuration.md"
	sampleFile = "../../docs/skerry.example.yaml"
)

// TestSections: each key is described once, by a sentence.
func TestSections(t *testing.T) {
	left := Default().Keys()
	for _, section := range sections {
		for _, s := range section.Settings {
			if _, there := left[s.Key]; !there {
				t.Errorf("%s is no key of the configuration, or is described twice", s.Key)
			}
			delete(left, s.Key)
			if !strings.HasSuffix(s.Text, ".") || len(s.Text) < 10 {
				t.Errorf("%s: %q is no sentence", s.Key, s.Text)
			}
			if s.Unset != "" && s.Default() != "" && s.Key != "secrets.key_file" {
				t.Errorf("%s has the default %s, and is described to have none", s.Key, s.Default())
			}
		}
	}
	for key := range left {
		t.Errorf("%s is not described in settings.go", key)
	}
}

// TestPage: docs/configuration.md and the sample match what the settings generate.
func TestPage(t *testing.T) {
	for file, want := range map[string]string{pageFile: page(), sampleFile: sample()} {
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s is not what settings.go makes: run go test ./internal/config -run TestPage -update (%v)", file, err)
		}
	}
}

// TestSample: a server accepts the sample as it is, and with every line that is a comment switched on. Neither
// changes a default.
func TestSample(t *testing.T) {
	text, err := os.ReadFile(sampleFile)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for line := range strings.Lines(string(text)) {
		// A setting that is switched off is "#key:"; "# " begins a text.
		if off, ok := strings.CutPrefix(strings.TrimLeft(line, " "), "#"); ok && !strings.HasPrefix(off, " ") {
			line = strings.Repeat(" ", len(line)-len(strings.TrimLeft(line, " "))) + off
		}
		all.WriteString(line)
	}
	for name, text := range map[string]string{"as it is": string(text), "all of it": all.String()} {
		file := filepath.Join(t.TempDir(), "skerry.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(file, func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := Default().Keys()
		for key, got := range c.Keys() {
			empty := reflect.ValueOf(got).Kind() == reflect.Slice || reflect.ValueOf(got).Kind() == reflect.Map
			if empty && reflect.ValueOf(got).Len() == 0 && reflect.ValueOf(want[key]).Len() == 0 {
				continue
			}
			if !reflect.DeepEqual(got, want[key]) {
				t.Errorf("%s: %s is %v, want the default %v", name, key, got, want[key])
			}
		}
		if err := c.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// page is docs/configuration.md.
func page() string {
	var b strings.Builder
	b.WriteString(`# Configuration

<!-- Written by go test ./internal/config -run TestPage -update. Edit internal/config/settings.go. -->

Start the server with a file, ` + "`skerry serve --config /etc/skerry/skerry.yaml`" + `, or with variables. A variable wins over
the file, a flag over both. [skerry.example.yaml](skerry.example.yaml) has every setting with its default: copy what you change.

* **At the start** the server names every problem at once and stops. ` + "`skerry doctor --config …`" + ` looks further: whether
  Docker, Redis or a folder is as the settings say.
* **Lists** are separated by commas in a variable. A map is YAML there. A duration is ` + "`30s`, `5m` or `1h`" + `.
* **` + "`SKERRY_CONFIG`" + `** names the file. The command line reads ` + "`SKERRY_SERVER` and `SKERRY_API_KEY`" + `; ` + "`skerry demo`" + ` also
  reads ` + "`SKERRY_MCP_DIR`. `make` keeps what it builds and fetches in `SKERRY_CACHE` (`/var/cache/skerry`)" + `.
`)
	for _, section := range sections {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| setting | type | default | what it does |\n|---|---|---|---|\n", section.Title, section.Text)
		for _, s := range section.Settings {
			value := s.Unset
			if value == "" && s.Default() != "" {
				value = "`" + s.Default() + "`"
			}
			fmt.Fprintf(&b, "| `%s`<br>`%s` | %s | %s | %s |\n", s.Key, EnvName(s.Key), s.Type(), value, s.Text)
		}
	}
	return b.String()
}

// sample is docs/skerry.example.yaml.
func sample() string {
	var b strings.Builder
	b.WriteString(`# Every setting of Skerry with its default. The server accepts this file as it is: skerry serve --config FILE.
# A line that begins with # and a name is a setting without a value. docs/configuration.md explains each.
# Written by go test ./internal/config -run TestPage -update. Edit internal/config/settings.go.
`)
	for _, section := range sections {
		fmt.Fprintf(&b, "\n# ---- %s ----\n", section.Title)
		parent := ""
		for _, s := range section.Settings {
			head, name, nested := strings.Cut(s.Key, ".")
			indent := ""
			if !nested {
				head, name = "", s.Key
			}
			if head != parent && nested {
				fmt.Fprintf(&b, "\n%s:", head)
			}
			if parent = head; nested {
				indent = "  "
			}
			b.WriteString("\n")
			for _, line := range wrap(plain(s.Text), 100) {
				fmt.Fprintf(&b, "%s# %s\n", indent, line)
			}
			if s.Unset != "" {
				fmt.Fprintf(&b, "%s# Without a value: %s.\n", indent, plain(s.Unset))
			}
			off, value := "", s.Default()
			if value == "" {
				off, value = "#", map[string]string{"list": "[]", "map": "{}", "duration": "0s", "number": "null"}[s.Type()]
			}
			if value == "" {
				value = `""`
			}
			fmt.Fprintf(&b, "%s%s%s: %s\n", indent, off, name, value)
		}
	}
	return b.String()
}

var link = regexp.MustCompile(`\[[^\]]*\]\(([^)]*)\)`)

// plain removes Markdown: a link becomes the page's path.
func plain(text string) string {
	return strings.NewReplacer("`` !`command` ``", "!`command`", "`", "").Replace(link.ReplaceAllString(text, "docs/$1"))
}

func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}

// Type names the type of a setting's value.
func (s Setting) Type() string {
	switch Default().Keys()[s.Key].(type) {
	case string:
		return "text"
	case int, *int:
		return "number"
	case bool:
		return "true or false"
	case time.Duration:
		return "duration"
	case []string, []OIDCIssuer:
		return "list"
	}
	return "map"
}

// Default returns the value that applies without a setting, as YAML; "" for an empty one.
func (s Setting) Default() string {
	switch v := Default().Keys()[s.Key].(type) {
	case string:
		return v
	case time.Duration:
		if v == 0 {
			return ""
		}
		return short(v)
	case []string:
		if len(v) > 0 {
			return "[" + strings.Join(v, ", ") + "]"
		}
	case int, bool:
		return fmt.Sprint(v)
	}
	return ""
}

// short writes 1h, not 1h0m0s.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
