"""A skill's folder on this machine, as it is attached to a thread."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

# Limits of the server, so that a wrong folder is noticed before it is read.
MAX_FILES = 512
MAX_BYTES = 16 << 20
# What editors, systems and tools leave in folders.
LEFT_OUT = {"__pycache__", "node_modules", ".git", ".DS_Store", "__MACOSX", "Thumbs.db", "desktop.ini"}


def skill_of(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The body of the request that attaches a folder. The folder's name is the skill's."""
    root = Path(folder).resolve()
    if not (root / "SKILL.md").is_file():
        raise ValueError(f"{os.fspath(folder)!r} is no skill's folder: it has no SKILL.md")
    texts: dict[str, str] = {}
    binary: dict[str, str] = {}
    size = 0
    for path in files_of(root):
        name = path.relative_to(root).as_posix()
        if len(texts) + len(binary) == MAX_FILES:
            raise ValueError(f"{os.fspath(folder)!r} has more than {MAX_FILES} files")
        size += path.stat().st_size
        if size > MAX_BYTES:
            raise ValueError(f"the files of {os.fspath(folder)!r} have more than {MAX_BYTES} bytes")
        data = path.read_bytes()
        try:
            texts[name] = data.decode()
        except UnicodeDecodeError:
            binary[name] = base64.b64encode(data).decode()
    return {"name": root.name, "files": texts, "binary_files": binary, "replace": True}


def files_of(folder: Path) -> list[Path]:
    found: list[Path] = []
    for path in sorted(folder.iterdir()):
        if path.name in LEFT_OUT or path.suffix == ".pyc":
            continue
        if path.is_symlink():
            raise ValueError(f"{str(path)!r} is a symbolic link: put the file itself in its place")
        if path.is_dir():
            found += files_of(path)
        elif path.is_file():
            found.append(path)
    return found
