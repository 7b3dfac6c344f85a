"""Tests of the plugin code-review: python3 -m unittest discover plugins/tests"""

import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent.parent / "skills/tests"))

from on_files import PLUGINS, OnFiles  # noqa: E402

CHANGES = PLUGINS / "code-review/skills/review-changes/scripts/changes.py"
CHECK = PLUGINS / "code-review/skills/review-python/scripts/pycheck.py"


class Changes(OnFiles):
    def git(self, *args):
        env = {**os.environ, "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org", "HOME": str(self.dir)}
        subprocess.run(["git", "-C", self.dir, *args], check=True, capture_output=True, env=env)

    def repository(self):
        self.git("init", "-q", "-b", "main")
        self.path("app.py", "def one():\n    return 1\n\n\ndef two():\n    return 2\n")
        self.path("old.txt", "".join(f"line {i}\n" for i in range(20)))
        self.git("add", "-A")
        self.git("commit", "-qm", "1")

    def facts(self, *args):
        return json.loads(self.well(CHANGES, "-C", self.dir, "--json", *args))

    def test_facts(self):
        self.repository()
        key = "hunter2" + "-correct-horse"
        self.path("app.py", f"def one():\n    breakpoint()\n    return 1\n\n\ndef two():\n    password = '{key}'\n    return 3  # TODO: why\n")
        self.git("mv", "old.txt", "new.txt")
        self.path("tool.sh", "#!/bin/sh\n").chmod(0o755)
        self.path("blob.bin", b"\0\1\2" * 100)
        self.git("add", "tool.sh", "blob.bin")
        self.path("untracked.py", "x")
        facts = self.facts()
        files = {f["path"]: f for f in facts["files"]}
        self.assertEqual(sorted(files), ["app.py", "blob.bin", "new.txt", "tool.sh"])
        self.assertEqual((files["app.py"]["added"], files["app.py"]["removed"], files["new.txt"]["from"], files["blob.bin"]["binary"]), (3, 1, "old.txt", True))
        found = [(f["rule"], f["file"], f["line"]) for f in facts["findings"]]
        self.assertEqual(found, [("secret", "app.py", 7), ("debug", "app.py", 2), ("untested", "app.py", 0), ("mode", "tool.sh", 0), ("binary", "blob.bin", 0), ("todo", "app.py", 8)])
        self.assertNotIn(key, json.dumps(facts))
        self.assertIn("untracked.py", facts["about"])
        self.assertIn("- debug: app.py:2: breakpoint()", self.well(CHANGES, "-C", self.dir))

    def test_base(self):
        self.repository()
        self.git("checkout", "-qb", "work")
        self.path("test_app.py", "def test_one():\n    print(1)\n")
        self.path("app.py", "<" * 7 + " HEAD\n" + "x = 1\n" * 500)
        self.git("add", "-A")
        self.git("commit", "-qm", "2")
        self.assertEqual([(f["rule"], f["file"]) for f in self.facts("main")["findings"]], [("conflict", "app.py"), ("large", "app.py")])

    def test_patch(self):
        patch = "--- a/one.py\t2026-01-01\n+++ b/one.py\t2026-01-02\n@@ -1,2 +1,3 @@ def f():\n--- not a header\n+++ nor this\n+\tx = 1\n context\n--- a/two.py\n+++ b/two.py\n@@ -5 +5 @@\n-old\n+new\n"
        facts = self.facts(self.path("a.patch", patch))
        self.assertEqual([(f["path"], f["added"], f["removed"], f["where"]) for f in facts["files"]], [("one.py", 2, 1, ["def f():"]), ("two.py", 1, 1, [])])

    def test_refused(self):
        self.refused(CHANGES, "git: ", "-C", self.dir)
        self.repository()
        self.refused(CHANGES, "there is no change", "-C", self.dir)
        self.refused(CHANGES, "git: ", "-C", self.dir, "nothing")
        self.refused(CHANGES, "no file", "-C", self.dir, "none.patch")
        self.refused(CHANGES, "no unified diff", self.path("x.patch", "hello\n"))


class Python(OnFiles):
    def check(self, text, *rules):
        path = self.path("a.py", text)
        code, out, err = self.run_script(CHECK, path)
        found = [line.removeprefix(f"{path}:").split(": ")[1] for line in out.splitlines()[:-1]]
        self.assertEqual((sorted(found), err), (sorted(rules), ""), text)
        self.assertEqual(code, 1 if rules else 0)

    def test_rules(self):
        for text, *rules in (
            ("def f(", "syntax"),
            ("try:\n    f()\nexcept:\n    g()\n", "except"),
            ("try:\n    f()\nexcept Exception:\n    pass\n", "except"),
            ("def f(a=[],\n      *, b={}):\n    return a, b\n", "default", "default"),
            ("import os\nos.system('rm ' + name)\n", "shell"),
            ("import subprocess\nsubprocess.run(f'ls {d}', shell=True)\n", "shell"),
            ("cursor.execute(f'select {x}')\neval(x)\n", "shell", "shell"),
            ("if x is 'a' or x == None or x == x:\n    pass\n", "compare", "compare", "compare"),
            ("assert (x, 'message')\n", "assert"),
            ("fs = []\nfor i in r:\n    fs.append(lambda: i)\n", "late"),
            ("text = open('x').read()\n", "open"),
            ("import os, sys as s\nprint(s)\n", "unused"),
            ("def f():\n    a = 1\n    return 2\n", "unused"),
            ("def f(list):\n    return list\n", "shadow"),
            ("def f():\n    return 1\n    g()\n", "unreachable"),
            ("def f():\n" + "    g()\n" * 61, "long"),
        ):
            with self.subTest(text):
                self.check(text, *rules)

    def test_good_code(self):
        for text in (
            "try:\n    f()\nexcept OSError:\n    pass\nexcept Exception:\n    log()\n    raise\n",
            "import subprocess\nsubprocess.run(['ls', d])\ncursor.execute('select ?', (x,))\neval('1')\n",
            "with open('x') as f, open('y').mode as m:\n    f.read(m)\n",
            "for i in r:\n    fs.append(lambda i=i: i)\n",
            "def f():\n    global a\n    a = 1\n    b, _c = 1, 2\n    return b\n",
            "if x is None or x is True or x == 0:\n    pass\n",
            "from __future__ import annotations\nimport a.b\n__all__ = ['z']\nfrom q import z\na.b.c()\n",
            "if x:\n    raise ValueError\ng()\n",
        ):
            with self.subTest(text):
                self.check(text)

    def test_folder(self):
        self.path("pkg/a.py", "def f(a=[]):\n    return a\n")
        self.path("pkg/.venv/b.py", "def f(")
        self.path("pkg/deep.py", "(" * 5000)
        code, out, _ = self.run_script(CHECK, self.dir / "pkg")
        self.assertEqual(code, 1)
        self.assertIn("2 files, 2 findings", out)
        self.refused(CHECK, "no file", self.dir / "none.py")
        self.refused(CHECK, "no Python file", self.path("empty/x.txt", "").parent)
