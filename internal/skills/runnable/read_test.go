package runnable

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func skillOf(files map[string]string) fstest.MapFS {
	m := fstest.MapFS{}
	for name, text := range files {
		m[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	if m["SKILL.md"] == nil {
		m["SKILL.md"] = &fstest.MapFile{Data: []byte("---\nname: x\ndescription: y\n---\n")}
	}
	return m
}

func md(text string) map[string]string {
	return map[string]string{"SKILL.md": "---\nname: x\ndescription: y\n---\n" + strings.ReplaceAll(text, "'''", "```")}
}

// TestNeeds: what each way of saying it comes to. A doubt is written with a question mark.
func TestNeeds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string
		want  string // sorted, separated by "; "
	}{
		"instructions":     {md("Ask ~~CRM for the deals, then `write` a summary with `make` or `test`. See https://example.com."), ""},
		"connector":        {md("Call the `slack` tool and `stripe`; use ~~chat."), ""},
		"bash block":       {md("'''bash\ncd x && pandoc a.md | grep b > c\nFOO=1 ./run.sh\n'''"), "command grep; command pandoc"},
		"placeholders":     {md("'''bash\nqpdf <input file> [options] out.pdf\n'''"), "command qpdf"},
		"choices":          {md("`uv run x.py append --type <decision|constraint|version> --text \"…\"`"), "command uv"},
		"not a script":     {md("'''bash\npdftotext a.pdf (then look)\ntesseract x\n'''"), "command pdftotext; command tesseract"},
		"other systems":    {md("On Linux: `apt-get install jq`\n\n**macOS**: `brew install gawk`\n\nOn macOS:\n\n'''bash\nsips x\n'''\n'''bash\n# macOS (Homebrew)\nbrew install a\n# Ubuntu\nqpdf x\n'''\n'''powershell\nGet-Item\n'''\n## Windows\n'''bash\nwinthing x\n'''\nand `tesseract x`\n### More\n`node x`\n## All\n`git log`"), "command git; command qpdf; package jq"},
		"one system only":  {md("'''powershell\nGet-Item\n'''"), "command pwsh"},
		"both systems":     {md("On macOS and Linux:\n'''bash\nfd x\n'''\nThe windows of a plot are drawn by `ffprobe x` or `ffmpeg x`."), "command fd; command ffmpeg; command ffprobe"},
		"prompts":          {md("'''console\n$ jq . x\nls-like output\n'''"), "command jq"},
		"no language":      {md("'''\npandoc is great\nThe thing:\n  ffmpeg -i x y\n'''"), "command ffmpeg; command pandoc"},
		"tree":             {md("'''\nskill/\n├── SKILL.md\nmake believe\n'''"), ""},
		"other blocks":     {md("'''sql\nselect 1\n'''\n'''r\nlibrary(x)\n'''\n'''markdown\n'''bash\nfoo\n'''\n"), "command Rscript"},
		"inline":           {md("Run `soffice --headless x` and `pdfplumber`, not `find`."), "command soffice; python pdfplumber"},
		"pip":              {md("`pip install 'pandas>=2' pypdf[crypto] -r requirements.txt` and\n'''bash\npython -m pip install --upgrade pip openpyxl\n'''"), "command python; python openpyxl; python pandas>=2; python pypdf"},
		"npm":              {md("'''bash\nnpm install -g @scope/a@^1.2 docx\nnpx mmdc -i x\n'''"), "node @scope/a@^1.2; node docx; node mmdc"},
		"system":           {md("'''bash\nsudo apt-get install -y poppler-utils\nbrew install ffmpeg\nconda install -c x samtools=1.2\n'''"), "command conda; package ffmpeg; package poppler-utils; package samtools"},
		"python block":     {md("'''python\nimport os, cv2\nfrom PIL import Image\nx = \"\"\"\nimport nothing\n\"\"\" # import no\n'''"), "python opencv-python; python os; python pillow"},
		"short name":       {md("'''python\ndf['a'] = np.log(1)\n'''"), "python numpy; python pandas"},
		"network block":    {md("'''bash\ncurl -s https://api.example.org/v1 | jq .\ncurl http://localhost:80/\n'''"), "command curl; command jq; network api.example.org"},
		"heredoc":          {md("'''bash\npython3 - <<'EOF'\nimport yaml\nEOF\n'''"), "command python3; python pyyaml"},
		"module run":       {md("'''bash\npython -m markitdown x.pdf\npython -c 'import lxml'\n'''"), "command python; python lxml; python markitdown"},
		"script not there": {md("'''bash\npython scripts/gone.py\n'''"), "command python; file scripts/gone.py"},
		"frontmatter": {map[string]string{"SKILL.md": "---\nname: x\ndescription: y\nallowed-tools: Bash(git:*) Bash(jq *) Read\ndependencies: python>=3.8, pandas>=1.5\ncompatibility: Requires pandoc, Stripe and internet access\n---\n"},
			"command git; command jq; command pandoc; network; python pandas>=1.5; python3>=3.8"},
		"odd requirement": {map[string]string{"SKILL.md": "---\ncompatibility: Requires the moon\n---\n"}, "?"},
		"mention":         {md("Use pandas. Save the result as a .xlsx file. Draw a Python chart."), "?; pandas; something that writes .xlsx"},
		"script": {map[string]string{"scripts/a.py": "#!/usr/bin/env python3\nimport b, yaml.x\nfrom . import c\nimport sys\nif True:\n    import bs4\n", "scripts/b.py": ""},
			"command python3; python beautifulsoup4; python pyyaml; python sys"},
		"optional import": {map[string]string{"a.py": "try:\n    import orjson\nexcept ImportError:\n    orjson = None\ntry:\n    import docx\nexcept ImportError:\n    print('no')\n    sys.exit(1)\nif TYPE_CHECKING:\n    import pandas\n"},
			"command python3; python python-docx"},
		"dynamic import": {map[string]string{"a.py": "importlib.import_module(name)\n__import__('attr')\n"}, "?; command python3; python attrs"},
		"pep 723":        {map[string]string{"a.py": "# /// script\n# requires-python = \">=3.12\"\n# dependencies = [\"rich\", \"httpx<1; sys_platform == 'win32'\"]\n# ///\nimport rich\n"}, "command python3; python rich; python3>=3.12"},
		"subprocess": {map[string]string{"a.py": "import subprocess\nsubprocess.run([\"soffice\", x])\ncmd = ['qpdf', '-x']\nsubprocess.run(cmd)\nos.system('pdftk a | sort')\nshutil.which('gs')\n"},
			"command gs; command pdftk; command python3; command qpdf; command soffice; command sort; python subprocess"},
		"made command": {map[string]string{"a.py": "subprocess.run(line, shell=True)\n"}, "?; command python3"},
		"online":       {map[string]string{"a.py": "import requests\nrequests.get('https://api.example.org/x')\nrequests.get('http://127.0.0.1/')\n"}, "command python3; network api.example.org; python requests"},
		"online where": {map[string]string{"a.py": "from urllib import request\n"}, "?; command python3; python urllib"},
		"only parses":  {map[string]string{"a.py": "import urllib.parse\nNS = 'http://schemas.example.org/x'\n"}, "command python3; python urllib"},
		"requirements": {map[string]string{"requirements.txt": "# c\nPyYAML==6.0 --hash=sha256:1\nlxml ; sys_platform == 'darwin'\n-r more.txt\nfoo[bar]>=1,<2 # why\ngit+https://x/y\n"}, "?; python PyYAML==6.0; python foo>=1,<2"},
		"pyproject":    {map[string]string{"pyproject.toml": "[project]\nrequires-python = '>=3.9'\ndependencies = ['a~=1.0']\n[tool.poetry.dependencies]\nb = '^1'\n"}, "python a~=1.0; python b; python3>=3.9"},
		"package.json": {map[string]string{"package.json": `{"dependencies":{"docx":"^9.0.0","x":"file:../x"},"devDependencies":{"y":"1"}}`}, "node docx@^9.0.0; node x"},
		"javascript":   {map[string]string{"a.mjs": "import fs from 'fs';\nimport d from 'docx';\nconst p = require('@a/b/c');\n// import no from 'no'\nawait import('./own.js');\nexecSync('pdftoppm x');\n"}, "command bun, deno or node; command pdftoppm; node @a/b; node docx"},
		"typescript":   {map[string]string{"a.ts": "#!/usr/bin/env -S deno run\nimport { x } from 'npm:zod@3';\nconst y = <string>x;\nfetch('https://x.example.net');\n"}, "command deno; network x.example.net; node zod"},
		"broken js":    {map[string]string{"a.js": "import ( from 'x'"}, "?; command bun, deno or node"},
		"shell script": {map[string]string{"run.sh": "#!/bin/bash\nset -e\nhelp() { :; }\nhelp\nif command -v jq; then sudo -u x nice -n 5 rsync a b; fi\n$TOOL x\n\"$DIR/y\" z\nxargs -n 1 tidy\n"},
			"?; command bash; command nice; command rsync; command tidy; command xargs"},
		"broken shell": {map[string]string{"run.sh": "if then ("}, "?; command sh"},
		"unread":       {map[string]string{"a.rb": "require 'x'", "b": "#!/usr/bin/perl\n", "c.bin": "\x00"}, "?; command perl; command ruby"},
		"documents":    {map[string]string{"README.md": "```bash\nfoo\n```", "references/a.md": "```bash\nbar\n```", "tests/x.py": "import z"}, "command bar"},
	} {
		n, err := Read(skillOf(c.files))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for range n.Doubts {
			got = append(got, "?")
		}
		for _, need := range n.List {
			got = append(got, need.String())
		}
		if s := strings.Join(slices.Compact(got), "; "); s != c.want {
			t.Errorf("%s:\n got  %s\n want %s\n %v", name, s, c.want, n.Doubts)
		}
	}
}

func TestNoSkill(t *testing.T) {
	t.Parallel()
	if _, err := Read(fstest.MapFS{"a.py": {}}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestPlaces(t *testing.T) {
	t.Parallel()
	n, err := Read(skillOf(map[string]string{"SKILL.md": "---\nname: x\n---\n\n```bash\ntrue\npandoc x\n```\n", "scripts/a.py": "\nimport docx\n"}))
	if err != nil {
		t.Fatal(err)
	}
	want := []Need{{Kind: Command, Name: "pandoc", File: "SKILL.md", Line: 7}, {Kind: Command, Name: "python3", File: "scripts/a.py", Line: 1}, {Kind: Module, Name: "docx", File: "scripts/a.py", Line: 2}}
	if !slices.Equal(n.List, want) {
		t.Errorf("%+v", n.List)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	p := Profile{
		Python: "3.11.2", Commands: map[string]bool{"pandoc": true, "mmdc": true}, Modules: map[string]bool{"docx": true, "json": true},
		Distributions: map[string]string{"pandas": "1.5.3", "python-docx": "1.1"}, Node: map[string]string{"docx": "9.1.0"}, NodeGlobal: map[string]string{"pptxgenjs": "3"},
		System: map[string]bool{"poppler-utils": true},
	}
	for _, c := range []struct {
		need Need
		want state
	}{
		{Need{Kind: Command, Name: "pandoc"}, there},
		{Need{Kind: Command, Name: "qpdf"}, notThere},
		{Need{Kind: Module, Name: "json"}, there},
		{Need{Kind: Module, Name: "tkinter"}, notThere},
		{Need{Kind: Python, Name: "Python_Docx"}, there},
		{Need{Kind: Python, Name: "pandas", Range: ">=1.5,<2"}, there},
		{Need{Kind: Python, Name: "pandas", Range: ">=2"}, notThere},
		{Need{Kind: Python, Name: "pandas", Range: ">=oops"}, perhaps},
		{Need{Kind: Version, Range: ">=3.12"}, notThere},
		{Need{Kind: Version, Range: "~=3.9"}, there},
		{Need{Kind: Node, Name: "docx", Range: "^9.0.0"}, there},
		{Need{Kind: Node, Name: "docx", Range: "^8"}, notThere},
		{Need{Kind: Node, Name: "pptxgenjs"}, perhaps},
		{Need{Kind: Node, Name: "x"}, notThere},
		{Need{Kind: NodeCLI, Name: "@mermaid/mmdc"}, there},
		{Need{Kind: System, Name: "poppler-utils"}, there},
		{Need{Kind: System, Name: "pandas"}, there},
		{Need{Kind: System, Name: "x"}, notThere},
		{Need{Kind: Network, Name: "x.example"}, notThere},
		{Need{Kind: File, Name: "scripts/x.py"}, notThere},
		{Need{Kind: Mention, Name: "pandas"}, there},
		{Need{Kind: Mention, Name: "scanpy"}, perhaps},
		{Need{Kind: Format, Name: "docx"}, there},
		{Need{Kind: Format, Name: "xlsx"}, perhaps},
	} {
		if got := p.has(c.need); got != c.want {
			t.Errorf("%+v: %d, want %d", c.need, got, c.want)
		}
	}
	for want, n := range map[string]Needs{
		sandbox.RunnableYes:     {List: []Need{{Kind: Command, Name: "pandoc"}}},
		sandbox.RunnableUnknown: {List: []Need{{Kind: Mention, Name: "x"}}},
		sandbox.RunnableNo:      {List: []Need{{Kind: Mention, Name: "x"}, {Kind: Module, Name: "PIL"}}, Doubts: []Doubt{{File: "a", Line: 1, Why: "x"}}},
	} {
		if r := p.Check(n); r.Template != want || (want == sandbox.RunnableUnknown) != (len(r.Unsure) > 0) || r.Missing == nil || (want == sandbox.RunnableNo) != slices.Equal(r.Missing, []string{"python pillow"}) {
			t.Errorf("%s: %+v", want, r)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add("```bash\nfoo $(bar `baz`\n```\n`pip install x`", "try:\n  import x\nexcept:\n", "import 'x'; exec(`y`)", "a() { b | c; }")
	f.Add("---\ncompatibility: [\n---\n~~~python\nnp.x\n", "'''", "((((((((", "<<EOF\n${")
	f.Add("- `$ sudo`\n`conda install \" \"`\n", "# /// script\n# a = 1\n# ///", "<x>", "sudo\nenv -\npython -m\npython -c")
	f.Fuzz(func(t *testing.T, doc, py, js, sh string) {
		n, err := Read(skillOf(map[string]string{"SKILL.md": doc, "a.py": py, "a.js": js, "a.sh": sh, "requirements.txt": doc, "package.json": js, "pyproject.toml": doc}))
		if err != nil {
			t.Fatal(err)
		}
		if len(n.List) > maxFound || len(n.Doubts) > maxFound {
			t.Errorf("%d needs, %d doubts", len(n.List), len(n.Doubts))
		}
	})
}
