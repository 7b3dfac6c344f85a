#!/usr/bin/env python3
"""Check Python files by their syntax tree: standard library only; runs none of them. See ../SKILL.md."""

import argparse
import ast
import builtins
import sys
import warnings
from pathlib import Path

MAX_FILE = 2 << 20
MAX_FILES = 2000
MAX_SHOWN = 300
MAX_LINES, MAX_BRANCHES = 60, 15
SHADOWED = {"list", "dict", "set", "str", "int", "id", "type", "input", "file", "max", "min", "sum", "len", "all", "any", "next", "iter", "map", "filter", "range", "open", "hash", "object", "bytes", "vars", "dir"} & set(dir(builtins))
SKIPPED = {".git", ".venv", "venv", "node_modules", "__pycache__", "build", "dist", ".tox"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def name_of(node):
    """The dotted name of an expression; "" when it has none."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return ""


def built(node):
    """Whether a text is put together of parts that are not in the program."""
    if isinstance(node, ast.JoinedStr):
        return any(isinstance(part, ast.FormattedValue) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mod)):
        return not (isinstance(node.left, ast.Constant) and isinstance(node.right, ast.Constant))
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format"


class Checker(ast.NodeVisitor):
    """The findings of one file."""

    def __init__(self):
        self.found = []
        self.loops = []  # names that the loops around bind
        self.managed = set()  # calls of open that something closes

    def add(self, node, rule, text):
        self.found.append((node.lineno, rule, text))

    def visit_With(self, node):
        for item in node.items:
            self.managed |= {id(call) for call in ast.walk(item.context_expr) if isinstance(call, ast.Call)}
        self.generic_visit(node)

    visit_AsyncWith = visit_With

    def visit_ExceptHandler(self, node):
        silent = all(isinstance(s, (ast.Pass, ast.Continue)) or isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) for s in node.body)
        wide = node.type is None or name_of(node.type) in ("Exception", "BaseException")
        if node.type is None and not any(isinstance(s, ast.Raise) for s in ast.walk(node)):
            self.add(node, "except", "`except:` takes Ctrl-C and exits, too: name the exceptions")
        elif wide and silent:
            self.add(node, "except", "every error disappears here")
        self.generic_visit(node)

    def function(self, node):
        for default in [*node.args.defaults, *(d for d in node.args.kw_defaults if d)]:
            if isinstance(default, (ast.List, ast.Dict, ast.Set)) or isinstance(default, ast.Call) and name_of(default.func) in ("list", "dict", "set"):
                self.add(default, "default", "this default is made once and shared by all calls: use None")
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        for argument in arguments:
            if argument.arg in SHADOWED:
                self.add(argument, "shadow", f"the parameter {argument.arg!r} hides the builtin")
        used = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        if self.loops and (late := used & set().union(*self.loops) - {a.arg for a in arguments} - self.bound(node)):
            self.add(node, "late", f"it uses {', '.join(sorted(late))} of the loop, which has its last value when it is called later: bind it as a default")

    @staticmethod
    def bound(node):
        return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}

    def visit_FunctionDef(self, node):
        self.function(node)
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        branches = sum(isinstance(n, (ast.If, ast.For, ast.While, ast.ExceptHandler, ast.IfExp, ast.BoolOp)) for n in ast.walk(node))
        if lines > MAX_LINES or branches > MAX_BRANCHES:
            self.add(node, "long", f"{node.name} has {lines} lines and {branches} branches")
        self.unused_locals(node)
        loops, self.loops = self.loops, []
        self.generic_visit(node)
        self.loops = loops

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node):
        self.function(node)
        self.generic_visit(node)

    def unused_locals(self, function):
        if any(isinstance(n, ast.Call) and name_of(n.func) in ("locals", "eval", "exec") for n in ast.walk(function)):
            return
        loaded, stored, outer = set(), {}, set()
        for n in ast.walk(function):
            if isinstance(n, ast.Name):
                if isinstance(n.ctx, ast.Store):
                    stored.setdefault(n.id, n)
                else:
                    loaded.add(n.id)
            elif isinstance(n, (ast.Global, ast.Nonlocal)):
                outer |= set(n.names)
        simple = {t.id for n in ast.walk(function) if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}
        for name, node in stored.items():
            if name in simple and name not in loaded | outer and not name.startswith("_"):
                self.add(node, "unused", f"nothing uses {name!r}")

    def visit_For(self, node):
        self.visit(node.iter)
        self.loops.append({n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)})
        for statement in node.body:
            self.visit(statement)
        self.loops.pop()
        for statement in node.orelse:
            self.visit(statement)

    visit_AsyncFor = visit_For

    def visit_Call(self, node):
        name = name_of(node.func)
        first = node.args[0] if node.args else None
        shell = any(k.arg == "shell" and isinstance(k.value, ast.Constant) and k.value.value is True for k in node.keywords)
        if name in ("eval", "exec") and first is not None and not isinstance(first, ast.Constant):
            self.add(node, "shell", f"{name} runs whatever the text is")
        elif first is not None and built(first) and (shell or name in ("os.system", "os.popen", "subprocess.getoutput")):
            self.add(node, "shell", "a text that is put together goes to a shell: give a list of arguments")
        elif isinstance(node.func, ast.Attribute) and node.func.attr in ("execute", "executemany") and first is not None and built(first):
            self.add(node, "shell", "a query that is put together: give the values as parameters")
        if isinstance(node.func, ast.Attribute) and name_of(node.func.value) == "" and isinstance(node.func.value, ast.Call) and name_of(node.func.value.func) == "open" and id(node.func.value) not in self.managed:
            self.add(node, "open", "the file is never closed: use with")
        self.generic_visit(node)

    def visit_Compare(self, node):
        for operator, right in zip(node.ops, node.comparators):
            literal = isinstance(right, ast.Constant) and isinstance(right.value, (str, int, float, bytes)) and not isinstance(right.value, bool)
            if isinstance(operator, (ast.Is, ast.IsNot)) and literal:
                self.add(node, "compare", "`is` compares objects: use ==")
            elif isinstance(operator, (ast.Eq, ast.NotEq)) and isinstance(right, ast.Constant) and right.value is None:
                self.add(node, "compare", "compare with None by `is`")
            elif isinstance(operator, (ast.Eq, ast.NotEq, ast.Lt, ast.Gt)) and ast.dump(node.left) == ast.dump(right) and not isinstance(right, ast.Call):
                self.add(node, "compare", "both sides are the same")
        self.generic_visit(node)

    def visit_Assert(self, node):
        if isinstance(node.test, ast.Tuple) and node.test.elts:
            self.add(node, "assert", "an assert of a tuple is always true")
        self.generic_visit(node)

    def generic_visit(self, node):
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if not isinstance(statements, list):
                continue
            for before, after in zip(statements, statements[1:]):
                if isinstance(before, (ast.Return, ast.Raise, ast.Break, ast.Continue)):
                    self.add(after, "unreachable", "nothing runs it")
                    break
        super().generic_visit(node)


def unused_imports(tree, path):
    if path.name == "__init__.py":
        return []
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    texts = " ".join(n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str) and len(n.value) < 200)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)) and getattr(node, "module", "") != "__future__":
            for alias in node.names:
                name = (alias.asname or alias.name).split(".")[0]
                if name not in used and name != "*" and name not in texts.split():
                    found.append((node.lineno, "unused", f"nothing uses the import {name!r}"))
    return found


def check(path):
    if path.stat().st_size > MAX_FILE:
        return [(0, "large", f"more than {MAX_FILE >> 20} MiB: it is not looked at")]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the code that is parsed
            tree = ast.parse(path.read_bytes(), str(path))
        checker = Checker()
        checker.visit(tree)
    except SyntaxError as err:
        return [(err.lineno or 0, "syntax", err.msg)]
    except (ValueError, RecursionError, MemoryError) as err:
        return [(0, "syntax", f"it cannot be parsed: {err or type(err).__name__}")]
    return sorted(set(checker.found + unused_imports(tree, path)))


def files_of(paths):
    """The Python files of what was named, and what is not there."""
    found, missing = [], []
    for path in paths:
        if path.is_dir():
            found += [p for p in sorted(path.rglob("*.py")) if p.is_file() and not SKIPPED & set(p.relative_to(path).parts)]
        elif path.is_file():
            found.append(path)
        else:
            missing.append(path)
    return found, missing


def main(argv=None):
    parser = argparse.ArgumentParser(description="Check Python files by their syntax tree.")
    parser.add_argument("path", type=Path, nargs="+", help="files or folders")
    args = parser.parse_args(argv)
    files, missing = files_of(args.path)
    for path in missing:
        print(f"pycheck: there is no file {path}", file=sys.stderr)
    if not files:
        print("pycheck: there is no Python file to look at", file=sys.stderr)
        return 2
    if len(files) > MAX_FILES:
        print(f"pycheck: {len(files)} files, of which it looks at {MAX_FILES}", file=sys.stderr)
    count = 0
    for path in files[:MAX_FILES]:
        for line, rule, text in check(path):
            count += 1
            if count <= MAX_SHOWN:
                print(f"{path}:{line}: {rule}: {text}")
    if count > MAX_SHOWN:
        print(f"and {count - MAX_SHOWN} more")
    print(f"{len(files[:MAX_FILES])} files, {count} findings")
    return 2 if missing else 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
