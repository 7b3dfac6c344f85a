package runnable

import (
	"strings"
	"testing"
)

// TestBranches: a script that has a way without a program does not need it, and one for another system counts for nothing.
func TestBranches(t *testing.T) {
	t.Parallel()
	const head = "#!/bin/sh\n"
	for name, c := range map[string]struct {
		file, text string
		have       string // programs that are there, besides sh and python3
		want       string // what is missing, without "command ", or "?" for a doubt
	}{
		"one of two":        {"a.sh", "if command -v magick >/dev/null; then magick a b; else convert a b; fi", "convert", ""},
		"neither":           {"a.sh", "if command -v magick >/dev/null; then magick a b; else convert a b; fi", "", "convert"},
		"the better one":    {"a.sh", "if command -v magick >/dev/null; then magick a b; else convert a b; fi", "magick", ""},
		"a chain":           {"a.sh", "if which a1; then a1; elif type b1; then b1; elif hash c1; then c1; else echo no >&2; exit 1; fi", "b1", ""},
		"none of a chain":   {"a.sh", "if which a1; then a1; elif command -v b1; then b1; else echo no >&2; exit 1; fi", "", "b1"},
		"its own needs":     {"a.sh", "if command -v jq; then rsync a b; fi", "jq", "rsync"},
		"not taken":         {"a.sh", "if command -v jq; then rsync a b; fi", "", ""},
		"gives up":          {"a.sh", "if ! command -v ffmpeg >/dev/null 2>&1; then\n  echo install ffmpeg\n  exit 1\nfi", "", "ffmpeg"},
		"gives up, there":   {"a.sh", "if ! command -v ffmpeg >/dev/null 2>&1; then\n  echo install ffmpeg\n  exit 1\nfi", "ffmpeg", ""},
		"installs":          {"a.sh", "if ! command -v yq; then apt-get install -y yq; fi\nyq .", "", "yq package yq"},
		"by or":             {"a.sh", "command -v gs >/dev/null || { echo no; exit 1; }", "", "gs"},
		"by or, installs":   {"a.sh", "which uv || pip install uv\nuv run x", "uv", ""},
		"for what failed":   {"a.sh", "rg x || grep x", "rg", ""},
		"by and":            {"a.sh", "command -v tput && tput bold", "", ""},
		"substitution":      {"a.sh", "if [ -z \"$(command -v node)\" ]; then echo no; exit 1; fi", "", "node"},
		"double brackets":   {"a.sh", "if [[ -x \"$(which gsed)\" ]]; then gsed x; else sed x; fi", "sed", ""},
		"other system":      {"a.sh", "if [ \"$(uname)\" = Darwin ]; then brew install x; pbcopy; else xclip; fi", "", "xclip"},
		"ostype":            {"a.sh", "if [[ $OSTYPE == darwin* ]]; then sips a; elif [[ $OSTYPE == linux* ]]; then identify a; fi", "", "identify"},
		"case of systems":   {"a.sh", "case $(uname -s) in Darwin*) open x;; Linux*) xdg-open x;; MINGW*|CYGWIN*) start x;; esac", "xdg-open", ""},
		"another case":      {"a.sh", "case $1 in Darwin) otool x;; esac", "", "otool"},
		"after a branch":    {"a.sh", "if command -v a1; then :; fi\nb1", "", "b1"},
		"in both":           {"a.sh", "if command -v a1; then b1; fi\nb1", "", "b1"},
		"python, which":     {"a.py", "import shutil\nif shutil.which('magick'):\n    subprocess.run(['magick', a])\nelse:\n    subprocess.run(['convert', a])\n", "convert", ""},
		"python, neither":   {"a.py", "if shutil.which('magick'):\n    subprocess.run(['magick', a])\nelse:\n    subprocess.run(['convert', a])\n", "", "convert"},
		"python, gives up":  {"a.py", "def f():\n    if not shutil.which('pandoc'):\n        print('no')\n        sys.exit(1)\n    subprocess.run(['ls'])\n", "ls", "pandoc"},
		"python, there":     {"a.py", "if shutil.which('pandoc') is None:\n    raise RuntimeError('no')\n", "pandoc", ""},
		"python, unsure":    {"a.py", "def f():\n    if shutil.which('pandoc') is None:\n        return None\n", "", "?"},
		"python, either":    {"a.py", "tool = shutil.which('soffice') or shutil.which('libreoffice')\n", "libreoffice", ""},
		"python, either no": {"a.py", "tool = shutil.which('soffice') or shutil.which('libreoffice')\n", "", "soffice"},
		"python, system":    {"a.py", "if sys.platform == 'darwin':\n    subprocess.run(['open', a])\nelif os.name == 'nt':\n    subprocess.run(['start', a])\nelse:\n    subprocess.run(['xdg-open', a])\n", "", "xdg-open"},
		"python, nested":    {"a.py", "if platform.system() == 'Windows':\n    if x:\n        subprocess.run(['powershell', a])\n    subprocess.run(['cmd', a])\nsubprocess.run(['git', a])\n", "git", ""},
		"python, not linux": {"a.py", "if platform.system() != 'Linux':\n    subprocess.run(['sysctl', a])\n", "", ""},
	} {
		if strings.HasSuffix(c.file, ".sh") {
			c.text = head + c.text
		}
		needs, err := Read(skillOf(map[string]string{c.file: c.text}))
		if err != nil {
			t.Fatal(err)
		}
		p := Profile{Commands: setOf(c.have + " sh python3"), Modules: setOf("shutil subprocess sys os platform")}
		r := p.Check(needs)
		got := strings.ReplaceAll(strings.Join(r.Missing, " "), "command ", "")
		if got == "" && len(r.Unsure) > 0 {
			got = "?"
		}
		if got != c.want {
			t.Errorf("%s: missing %q, want %q (%+v)", name, got, c.want, needs)
		}
	}
}
