#!/usr/bin/env python3
"""Collect the facts of a change for its review: git and the standard library only. See ../SKILL.md."""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

MAX_PATCH = 32 << 20
MAX_FILES = 5000
MAX_SHOWN = 100
LARGE_FILE = 400  # added lines
LARGE_CHANGE = 1000
CODE = {".py", ".js", ".mjs", ".cjs", ".ts", ".tsx", ".jsx", ".go", ".rs", ".java", ".kt", ".rb", ".php", ".c", ".cc", ".cpp", ".h", ".cs", ".swift", ".scala", ".sh"}
TESTS = re.compile(r"(^|/)(tests?|__tests__|spec|testdata)/|(^|/)test_|_test\.|\.test\.|\.spec\.|Tests?\.(java|kt|cs|swift)$")

RULES = [
    ("conflict", re.compile(r"^(<{7} |>{7} |={7}$|\|{7} )")),
    ("debug", re.compile(r"\bbreakpoint\(\)|\bpdb\.set_trace\(|^\s*debugger;?\s*$|\bconsole\.(log|debug)\(|\bvar_dump\(|\bdbg!\(|\b(it|describe|test)\.only\(|\bfdescribe\(|\bfit\(|\bspew\.Dump\(")),
    ("skipped", re.compile(r"@(unittest|pytest\.mark)\.skip\b|\b(it|describe|test)\.skip\(|\bxit\(|\bt\.Skip\(|#\[ignore\]|@Disabled\b|@Ignore\b")),
    ("todo", re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")),
]
# Names of what is secret with a literal behind it, and the shapes of well-known keys.
NAMED = re.compile(r"""(?i)\b[\w.-]*(?:passw(?:or)?d|secret|api[_-]?key|access[_-]?key|auth[_-]?token)\b["']?\s*[:=]\s*["']([^"'\s]{8,})["']""")
SHAPED = re.compile(r"\b(?:AKIA[0-9A-Z]{16}|gh[pousr]_[0-9A-Za-z]{30,}|sk-[0-9A-Za-z_-]{20,}|xox[abp]-[0-9A-Za-z-]{10,})\b|-{5}BEGIN [A-Z ]*PRIVATE" + " KEY-{5}")
HARMLESS = re.compile(r"(?i)example|placeholder|changeme|dummy|xxxx|\$\{|<[a-z_ -]+>|env|\*{4}")


class Problem(Exception):
    """What the caller has to put right."""


def git(*command):
    try:
        done = subprocess.run(["git", "-c", "core.quotepath=off", "-c", "diff.noprefix=false", *command], capture_output=True, timeout=60)
    except FileNotFoundError:
        raise Problem("git is not installed here: give a patch file") from None
    if done.returncode:
        raise Problem("git: " + done.stderr.decode(errors="replace").strip()[:300])
    if len(done.stdout) > MAX_PATCH:
        raise Problem(f"the change has more than {MAX_PATCH >> 20} MiB: review it in parts, with `git diff BASE -- FOLDER > part.patch`")
    return done.stdout.decode(errors="replace")


def patch_of(base, folder):
    """The text of a patch, and where it is from."""
    path = Path(base) if base else None
    if path and path.is_file():
        if path.stat().st_size > MAX_PATCH:
            raise Problem(f"{path} has more than {MAX_PATCH >> 20} MiB")
        return path.read_text("utf-8", errors="replace"), f"the patch {path.name}"
    options = ["diff", "--no-color", "--no-ext-diff", "--no-textconv", "--find-renames"]
    if not base:
        untracked = [name for name in git("-C", folder, "ls-files", "--others", "--exclude-standard").splitlines() if name]
        patch = git("-C", folder, *options, "HEAD")
        return patch, "the uncommitted changes" + (f"; {len(untracked)} untracked files are not looked at: {', '.join(untracked[:10])}" if untracked else "")
    if base.startswith("-"):
        raise Problem(f"{base!r} is no branch, commit or file")
    if base.endswith((".patch", ".diff")):
        raise Problem(f"there is no file {base}")
    git("-C", folder, "rev-parse", "--verify", "--quiet", base + "^{commit}")
    return git("-C", folder, *options, base + "...HEAD"), f"the changes since {base}"


def name_in(header, line):
    name = line[len(header) :].split("\t")[0].strip().strip('"')
    return "" if name == "/dev/null" else re.sub(r"^[ab]/", "", name)


def parse(patch):
    """The files of a unified diff, with their added lines."""
    files, current, old, new = [], None, 0, 0
    left_old = left_new = 0  # lines of the hunk that are still to come: "--- a" may be a removed line
    for line in patch.splitlines():
        if current and (left_old > 0 or left_new > 0) and line[:1] in ("+", "-", " ", ""):
            if line.startswith("+"):
                current["added"].append((new, line[1:]))
                new, left_new = new + 1, left_new - 1
            elif line.startswith("-"):
                current["removed"] += 1
                left_old -= 1
            else:
                new, left_old, left_new = new + 1, left_old - 1, left_new - 1
            continue
        if line.startswith("diff --git "):
            names = re.fullmatch(r'diff --git "?a/(.*?)"? "?b/(.*?)"?', line)
            current = {"path": names.group(2) if names else "?", "from": "", "added": [], "removed": 0, "binary": False, "mode": "", "where": [], "status": "changed"}
            files.append(current)
        elif line.startswith("--- ") and (current is None or current["added"] or current["removed"] or current["path"] == "?"):
            current = {"path": name_in("--- ", line), "from": "", "added": [], "removed": 0, "binary": False, "mode": "", "where": [], "status": "changed"}
            files.append(current)
        elif current is None:
            continue
        elif line.startswith("+++ "):
            current["path"] = name_in("+++ ", line) or current["path"]
        elif line.startswith("new file mode"):
            current["status"] = "new"
            current["mode"] = line.split()[-1]
        elif line.startswith("deleted file mode"):
            current["status"] = "deleted"
        elif line.startswith("rename from "):
            current["from"], current["status"] = line[12:], "renamed"
        elif line.startswith("new mode "):
            current["mode"] = line.split()[-1]
        elif line.startswith(("Binary files ", "GIT binary patch")):
            current["binary"] = True
        elif hunk := re.match(r"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)", line):
            new = int(hunk.group(2))
            left_old, left_new = (int(n) if n is not None else 1 for n in (hunk.group(1), hunk.group(3)))
            if hunk.group(4) and hunk.group(4) not in current["where"]:
                current["where"].append(hunk.group(4).strip()[:80])
        if len(files) > MAX_FILES:
            raise Problem(f"the change has more than {MAX_FILES} files: review it in parts")
    return files


def secret(line):
    named = NAMED.search(line)
    return bool(SHAPED.search(line) or named and not HARMLESS.search(line))


def findings(files):
    found = []

    def add(rule, path, line, text):
        found.append({"rule": rule, "file": path, "line": line, "text": text.strip()[:120]})

    for f in files:
        is_test = bool(TESTS.search(f["path"]))
        prose = Path(f["path"]).suffix.lower() in (".md", ".rst", ".txt")
        for number, line in f["added"]:
            if secret(line):
                add("secret", f["path"], number, "a value that looks secret; it is not shown here")
                continue
            for rule, pattern in RULES:
                if prose and rule != "conflict" or rule == "debug" and is_test and ".only" not in line:
                    continue
                if pattern.search(line) and not (rule == "conflict" and prose and line.strip("=") == ""):
                    add(rule, f["path"], number, line)
                    break
        if f["binary"]:
            add("binary", f["path"], 0, "has no readable difference")
        if f["mode"].endswith("755") and f["status"] != "deleted":
            add("mode", f["path"], 0, "is executable now")
        if len(f["added"]) > LARGE_FILE:
            add("large", f["path"], 0, f"{len(f['added'])} added lines")
    total = sum(len(f["added"]) for f in files)
    if total > LARGE_CHANGE:
        add("large", "", 0, f"the change adds {total} lines: ask whether it can be split")
    code = [f for f in files if Path(f["path"]).suffix.lower() in CODE and not TESTS.search(f["path"]) and f["added"]]
    if code and not any(TESTS.search(f["path"]) for f in files):
        add("untested", code[0]["path"], 0, f"{len(code)} files of code changed, and no test")
    order = ["conflict", "secret", "debug", "skipped", "untested", "large", "mode", "binary", "todo"]
    return sorted(found, key=lambda x: order.index(x["rule"]))


def show(files, found, about):
    print(f"# Changes: {about}\n\n{len(files)} files, +{sum(len(f['added']) for f in files)} -{sum(f['removed'] for f in files)} lines\n")
    for f in files[:MAX_SHOWN]:
        more = f" (was {f['from']})" if f["from"] else "" if f["status"] == "changed" else f" ({f['status']})"
        print(f"- {f['path']}{more}: " + ("binary" if f["binary"] else f"+{len(f['added'])} -{f['removed']}") + (f"; in {', '.join(f['where'][:4])}" if f["where"] else ""))
    if len(files) > MAX_SHOWN:
        print(f"- and {len(files) - MAX_SHOWN} more")
    if found:
        print("\n## Look at\n")
    for x in found[:MAX_SHOWN]:
        place = x["file"] + (f":{x['line']}" if x["line"] else "")
        print(f"- {x['rule']}: " + (f"{place}: " if place else "") + x["text"])
    if len(found) > MAX_SHOWN:
        print(f"- and {len(found) - MAX_SHOWN} more: see --json")


def main(argv=None):
    parser = argparse.ArgumentParser(description="Collect the facts of a change for its review.")
    parser.add_argument("base", nargs="?", help="a branch or commit to compare with, or a patch file (default: uncommitted changes)")
    parser.add_argument("-C", dest="folder", default=".", help="the repository (default: the working folder)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    try:
        patch, about = patch_of(args.base, args.folder)
        files = parse(patch)
        if not files:
            raise Problem("there is no change" if not patch.strip() else "this is no unified diff: make one with `git diff` or `diff -u`")
        found = findings(files)
    except subprocess.TimeoutExpired:
        print("changes: git took more than 60 seconds", file=sys.stderr)
        return 2
    except (Problem, OSError) as err:
        print(f"changes: {err}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps({"about": about, "files": [{**f, "added": len(f["added"])} for f in files], "findings": found}, indent=1))
    else:
        show(files, found, about)
    return 0


if __name__ == "__main__":
    sys.exit(main())
