package runnable

import (
	"strings"
	"testing"
)

// TestStarts: which programs a Python script starts for sure.
func TestStarts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ code, want string }{
		"over lines":  {"import subprocess\nsubprocess.run(\n    [\n        \"soffice\",\n        \"--headless\",\n    ],\n    check=True,\n)\n", "command python3; command soffice; python subprocess"},
		"in a list":   {"import subprocess\nline = [\n    \"qpdf\",\n    path,\n]\nsubprocess.run(line, check=True)\n", "command python3; command qpdf; python subprocess"},
		"only a list": {"names = [\"ann\", \"bob\"]\nprint(names)\n", "command python3"},
		"made":        {"import subprocess\nsubprocess.run(build(), check=True)\n", "?; command python3; python subprocess"},
		"asks":        {"import subprocess\ndef has():\n    try:\n        subprocess.run([\"gtimeout\", \"--version\"])\n        return True\n    except (FileNotFoundError, subprocess.TimeoutExpired):\n        return False\n", "command python3; python subprocess"},
		"needs":       {"import subprocess\ntry:\n    subprocess.run([\"pandoc\", x])\nexcept FileNotFoundError:\n    print(\"pandoc is missing\")\n", "command pandoc; command python3; python subprocess"},
		"fallback":    {"import subprocess\ndef needs_shim():\n    return False\ndef shim():\n    subprocess.run(\n        [\"gcc\", \"x.c\"],\n    )\nif needs_shim():\n    shim()\n", "command python3; python subprocess"},
		"both":        {"import subprocess\ndef needs_shim():\n    return False\ndef shim():\n    subprocess.run([\"gcc\", \"x.c\"])\nif needs_shim():\n    shim()\nshim()\n", "command gcc; command python3; python subprocess"},
		"with a word": {"import subprocess\ndef to_pdf():\n    subprocess.run([\"soffice\", \"x\"])\nif wants(path):\n    to_pdf()\n", "command python3; command soffice; python subprocess"},
	} {
		needs, err := Read(skillOf(map[string]string{"scripts/a.py": c.code}))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for range needs.Doubts {
			got = append(got, "?")
		}
		for _, n := range needs.List {
			got = append(got, n.String())
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("%s: %s, want %s", name, text, c.want)
		}
	}
}

// TestMentionedOnly: what a document suggests, and what a list of requirements has beyond what is imported.
func TestMentionedOnly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"suggested":     {md("* **Example**: `scripts/rotate.py` for rotation\n* A `scripts/turn.py` script would help\n* Run `scripts/real.py`."), "file scripts/real.py"},
		"of an example": {map[string]string{"SKILL.md": "---\nname: x\ndescription: y\n---\n", "examples/faq.md": "Check `docker logs` and `kubectl get pods`.\n"}, ""},
		"requirements":  {map[string]string{"requirements.txt": "pillow>=10\nimageio-ffmpeg\n", "a.py": "from PIL import Image\n"}, "command python3; python pillow; python pillow>=10; mention imageio-ffmpeg"},
		"no program":    {map[string]string{"requirements.txt": "imageio-ffmpeg\n"}, "python imageio-ffmpeg"},
	} {
		needs, err := Read(skillOf(c.files))
		if err != nil {
			t.Fatal(err)
		}
		var got, mentions []string
		for _, n := range needs.List {
			if n.Kind == Mention {
				mentions = append(mentions, "mention "+n.Name)
				continue
			}
			got = append(got, n.String())
		}
		if text := strings.Join(append(got, mentions...), "; "); text != c.want {
			t.Errorf("%s: %s, want %s", name, text, c.want)
		}
	}
}
