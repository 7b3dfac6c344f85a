"""What can be uploaded."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Any, BinaryIO, cast
from urllib.parse import quote

CHUNK = 256 << 10

Source = bytes | BinaryIO | Iterable[bytes]
AsyncSource = bytes | BinaryIO | AsyncIterable[bytes]


def form_of(files: Iterable[tuple[str, bytes]]) -> tuple[str, bytes]:
    """A form of files, and its content type. Names are whole paths and may have any character, so they are sent as RFC 2231 has them."""
    boundary = uuid.uuid4().hex
    parts = []
    for path, content in files:
        head = f"--{boundary}\r\nContent-Disposition: form-data; name=\"files\"; filename*=UTF-8''{quote(path, safe='')}\r\n"
        parts += [head.encode(), b"Content-Type: application/octet-stream\r\n\r\n", content, b"\r\n"]
    return f"multipart/form-data; boundary={boundary}", b"".join([*parts, f"--{boundary}--\r\n".encode()])


def rewindable(source: Any) -> bool:
    """Whether source can be sent a second time."""
    return isinstance(source, bytes) or (hasattr(source, "seekable") and source.seekable())


def iter_source(source: BinaryIO | Iterable[bytes]) -> Iterator[bytes]:
    if not hasattr(source, "read"):
        yield from source
        return
    file = cast(BinaryIO, source)
    if file.seekable():
        file.seek(0)
    while chunk := file.read(CHUNK):
        yield chunk


async def aiter_source(source: BinaryIO | Iterable[bytes] | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    if isinstance(source, AsyncIterable):
        async for chunk in source:
            yield chunk
        return
    for chunk in iter_source(source):
        yield chunk
