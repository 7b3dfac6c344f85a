"""What a session of Claude's Managed Agents remembers, for the commands in its sandbox.

Anthropic's SDK keeps memory on the worker's machine, below /mnt/memory, as its store has it. A copy lies in the thread's workspace,
where the link /mnt/memory of the images leads. push makes the copy like the store, and pull takes over what commands changed.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import tarfile
import tempfile
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath

from anthropic.lib.tools.agent_toolset import AgentToolContext

from skerry import _constants as constants
from skerry import models
from skerry._async.files import Files, content_of
from skerry.errors import NotFound

PLACE = "/mnt/memory"
FOLDER = constants.WORKSPACE + "/.memory"
MARKER = ".anthropic-memory-store"  # of the SDK, which alone writes it

# The store has smaller limits. These are of what a sandbox may make the worker read, and keep.
MAX_FILES = 2000
MAX_FILE_BYTES = 256 << 10
MAX_BYTES = 64 << 20
BATCH = 50
MAX_NOTES = 20


@dataclass
class _Store:
    local: Path
    folder: str
    read_only: bool
    known: dict[str, str] = field(default_factory=dict)
    """The digests of what both sides have, by path."""
    sizes: dict[str, int] = field(default_factory=dict)
    """What the worker keeps, in bytes, by path."""
    seen: dict[str, tuple[datetime, int]] = field(default_factory=dict)
    """When each file of the copy was changed, and its size, when it was last looked at."""

    def read(self) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for folder, _, names in os.walk(self.local):
            for name in names:
                path = Path(folder, name)
                rel = path.relative_to(self.local).as_posix()
                if rel != MARKER and path.is_file() and not path.is_symlink():
                    found[rel] = path.read_bytes()
        return found

    def write(self, rel: str, data: bytes) -> None:
        path = self.local / rel
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.parent.resolve().is_relative_to(self.local.resolve()):
            raise OSError(f"{path} leads out of {self.local}")
        # Beside the store: the SDK must not take half a file for a memory.
        with tempfile.TemporaryDirectory(dir=self.local.parent, prefix=".skerry-") as beside:
            file = Path(beside, "memory")
            file.write_bytes(data)
            os.replace(file, path)

    def remove(self, rel: str, digest: str) -> None:
        """Removes a file that is as it was."""
        path = self.local / rel
        if path.is_file() and not path.is_symlink() and _digest(path.read_bytes()) == digest:
            path.unlink()


class Memory:
    """Stores that are mounted elsewhere than below /mnt/memory are not in the sandbox."""

    def __init__(self, files: Files, context: AgentToolContext) -> None:
        self._files, self._turn = files, asyncio.Lock()
        self._stores = [
            _Store(Path(root), str(PurePosixPath(FOLDER, PurePosixPath(root).relative_to(PLACE))), root in context.read_only_roots)
            for root in context.allowed_roots
            if PurePosixPath(root).is_relative_to(PLACE)
        ]

    async def push(self) -> None:
        async with self._turn:
            for store in self._stores:
                await self._push(store)

    async def _push(self, store: _Store) -> None:
        now = await asyncio.to_thread(store.read)
        digests = {rel: _digest(data) for rel, data in now.items()}
        changed = {rel: now[rel] for rel, digest in digests.items() if store.known.get(rel) != digest}
        for rel in store.known.keys() - digests.keys():
            try:
                await self._files.delete(f"{store.folder}/{rel}")
            except NotFound:
                pass
            store.seen.pop(rel, None)
        if changed:
            await self._files.upload_archive(store.folder, _packed(changed))
            # Only of what was just written: what a job has changed meanwhile is not seen yet.
            for rel, entry in (await self._listed(store))[0].items():
                if rel in changed:
                    store.seen[rel] = (entry.modified_at, entry.bytes)
        elif not await self._files.exists(store.folder):
            await self._files.mkdir(store.folder)
        store.known = digests
        store.sizes = {rel: len(data) for rel, data in now.items()}

    async def pull(self) -> list[str]:
        """What was not taken over, a sentence each."""
        notes: list[str] = []
        async with self._turn:
            for store in self._stores:
                await self._pull(store, notes)
        more = len(notes) - MAX_NOTES
        return [*notes[:MAX_NOTES], f"{more} more like these"] if more > 0 else notes

    async def _pull(self, store: _Store, notes: list[str]) -> None:
        try:
            entries, whole = await self._listed(store)
        except NotFound:
            # The folder is gone, perhaps with the thread. The next push makes it anew.
            store.known.clear()
            store.seen.clear()
            return
        new = [rel for rel, e in entries.items() if store.seen.get(rel) != (e.modified_at, e.bytes)]
        for rel in new:
            store.seen[rel] = (entries[rel].modified_at, entries[rel].bytes)
        small = [rel for rel in new if entries[rel].bytes <= MAX_FILE_BYTES]
        for rel in set(new) - set(small):
            notes.append(f"{_shown(store, rel)} was not kept: it has {entries[rel].bytes} bytes, and a memory has at most {MAX_FILE_BYTES}")
        for begin in range(0, len(small), BATCH):
            part = small[begin : begin + BATCH]
            for rel, item in zip(part, await self._files.download_many(f"{store.folder}/{rel}" for rel in part), strict=True):
                data = content_of(item)
                if data is not None:
                    await self._take(store, rel, data, notes)
        if not whole:
            notes.append(f"{_shown(store)} has more than {MAX_FILES} entries: the others were not kept")
            return
        for rel in store.known.keys() - entries.keys():
            digest = store.known.pop(rel)  # the next push makes anew what a read-only store has
            if not store.read_only:
                await asyncio.to_thread(store.remove, rel, digest)
                store.sizes.pop(rel, None)

    async def _take(self, store: _Store, rel: str, data: bytes, notes: list[str]) -> None:
        digest = _digest(data)
        if store.known.get(rel) == digest:
            return
        if store.read_only:
            store.known.pop(rel, None)
            notes.append(f"{_shown(store, rel)} was not kept: this memory is read-only")
            return
        others = sum(store.sizes.values()) - store.sizes.get(rel, 0)
        full = len(store.sizes) >= MAX_FILES and rel not in store.sizes
        if full or len(data) > MAX_FILE_BYTES or others + len(data) > MAX_BYTES:
            notes.append(f"{_shown(store, rel)} was not kept: a memory has at most {MAX_FILES} files and {MAX_BYTES} bytes")
            return
        try:
            data.decode()
            await asyncio.to_thread(store.write, rel, data)
        except (OSError, UnicodeDecodeError) as err:
            why = "it is no text in UTF-8" if isinstance(err, UnicodeDecodeError) else "the worker cannot write it"
            notes.append(f"{_shown(store, rel)} was not kept: {why}")
            return
        store.known[rel], store.sizes[rel] = digest, len(data)

    async def _listed(self, store: _Store) -> tuple[dict[str, models.FileEntry], bool]:
        found = await self._files.list(store.folder, depth=16, limit=MAX_FILES)
        files = {e.path.removeprefix(store.folder + "/"): e for e in found.items if not e.is_dir and not e.symlink}
        files.pop(MARKER, None)
        return files, not found.truncated


def _shown(store: _Store, rel: str = "") -> str:
    return f"{store.local}/{rel}".rstrip("/")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _packed(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for rel, data in files.items():
            info = tarfile.TarInfo(rel)
            info.size, info.mode = len(data), 0o644
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()
