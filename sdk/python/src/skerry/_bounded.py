"""Files that code in a sandbox may change while they are read."""

from __future__ import annotations

from skerry._async.files import Files


async def bounded(files: Files, path: str, limit: int) -> bytes | None:
    """The bytes of a file. None: they are more than limit, whatever the file's size was said to be."""
    data = bytearray()
    async with files.open(path) as chunks:
        async for chunk in chunks:
            data += chunk
            if len(data) > limit:
                return None
    return bytes(data)
