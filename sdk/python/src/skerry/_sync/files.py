# Made from the async client by scripts/generate.py.
"""Files of a thread, by virtual path. None of these calls starts a sandbox."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, Literal

import httpx

from skerry import _constants as constants
from skerry import errors, models
from skerry._results import FileEvent
from skerry._retry import Kind
from skerry._sources import CHUNK, Source, form_of
from skerry._sync.transport import Transport


class Content(Iterator[bytes]):
    """The bytes of a file as they come. etag names this version of it, for if_match."""

    def __init__(self, chunks: Iterator[bytes], etag: str) -> None:
        self._chunks, self.etag = chunks, etag

    def __next__(self) -> bytes:
        return self._chunks.__next__()


class Files:
    def __init__(self, transport: Transport, base: str) -> None:
        self._transport, self._path = transport, base + "/files"

    def read(self, path: str, *, offset: int = 0, limit: int = constants.READ_LINES) -> models.FileText:
        """Lines of a text file; base64 of a binary file."""
        return models.FileText.model_validate(self._get("", path=path, offset=offset, limit=limit))

    def write(self, path: str, content: str | bytes, *, append: bool = False) -> models.Written:
        """Writes a file whole, or adds to its end; parents are made."""
        body: dict[str, object] = {"path": path, "content": content}
        if isinstance(content, bytes):
            body |= {"content": base64.b64encode(content).decode(), "encoding": "base64"}
        if append:
            body["append"] = True
        answer = self._transport.call("PUT", self._path, body=body, kind=Kind.ONCE if append else Kind.SAFE)
        return models.Written.model_validate(answer.json())

    def edit(self, path: str, old: str, new: str, *, replace_all: bool = False) -> models.Edited:
        """Replaces old by new. Conflict when old is not there, or there more than once without replace_all."""
        answer = self._transport.call("POST", self._path + "/edit", body={"path": path, "old": old, "new": new, "replace_all": replace_all})
        return models.Edited.model_validate(answer.json())

    def list(self, path: str = constants.USER_DATA, *, depth: int = 1, limit: int | None = None) -> models.FileListing:
        return models.FileListing.model_validate(self._get("/list", path=path, depth=depth, limit=limit))

    def glob(self, pattern: str, path: str = constants.WORKSPACE) -> models.FileListing:
        return models.FileListing.model_validate(self._get("/glob", path=path, pattern=pattern))

    def grep(
        self,
        pattern: str,
        path: str = constants.WORKSPACE,
        *,
        regex: bool = False,
        glob: str | None = None,
        max: int | None = None,
        ignore_case: bool = False,
        context: int | None = None,
    ) -> models.GrepMatches:
        """Lines that have pattern, which is taken literally unless regex."""
        found = self._get("/grep", path=path, pattern=pattern, regex=regex, glob=glob, max=max, ignore_case=ignore_case, context=context)
        return models.GrepMatches.model_validate(found)

    def stat(self, path: str) -> models.FileEntry:
        return models.FileEntry.model_validate(self._get("/stat", path=path))

    def exists(self, path: str) -> bool:
        try:
            self.stat(path)
        except errors.NotFound:
            return False
        return True

    def delete(self, path: str, *, recursive: bool = False) -> None:
        self._transport.call("DELETE", self._path, params={"path": path, "recursive": recursive})

    def mkdir(self, path: str) -> models.FileEntry:
        return models.FileEntry.model_validate((self._transport.call("POST", self._path + "/mkdir", body={"path": path})).json())

    def move(self, source: str, target: str) -> models.FileEntry:
        return models.FileEntry.model_validate(
            (self._transport.call("POST", self._path + "/move", body={"from": source, "to": target})).json()
        )

    def upload(
        self,
        path: str,
        content: Source,
        *,
        if_match: str | None = None,
        if_absent: bool = False,
        deadline_s: float = constants.TRANSFER_S,
    ) -> models.Written:
        """Writes bytes, an open file, or the items of an iterator, streamed. An iterator is sent once: a broken connection is an error.

        if_match is the etag that the file has to have ("*": any), if_absent wants no file to be there; PreconditionFailed: it is not
        so. With either a broken connection is an error, too: what the request wrote itself would not fit any more."""
        if if_match == "":
            raise ValueError("if_match is empty: the write would have no condition")
        only = {"If-None-Match": "*"} if if_absent else {}
        if if_match is not None:
            only["If-Match"] = if_match
        kind = Kind.ONCE if only else Kind.SAFE
        answer = self._transport.call(
            "PUT", self._path + "/content", params={"path": path}, content=content, kind=kind, deadline_s=deadline_s, headers=only
        )
        return models.Written.model_validate(answer.json())

    def download(self, path: str, *, deadline_s: float = constants.TRANSFER_S) -> bytes:
        """All bytes of a file."""
        with self.open(path, deadline_s=deadline_s) as chunks:
            return b"".join([chunk for chunk in chunks])

    def download_to(self, path: str, target: BinaryIO, *, deadline_s: float = constants.TRANSFER_S) -> int:
        """Copies a file's bytes into target, and returns their number."""
        size = 0
        with self.open(path, deadline_s=deadline_s) as chunks:
            for chunk in chunks:
                size += target.write(chunk)
        return size

    @contextmanager
    def open(self, path: str, *, deadline_s: float = constants.TRANSFER_S) -> Iterator[Content]:
        """The bytes of a file as they come, and their etag."""
        response, stack = self._transport.download(self._path + "/content", {"path": path}, {}, deadline_s)
        with stack:
            yield Content(self._chunks(response, path), response.headers.get("ETag", ""))

    def _chunks(self, response: httpx.Response, path: str) -> Iterator[bytes]:
        try:
            for chunk in response.iter_bytes(CHUNK):
                yield chunk
        except httpx.HTTPError as err:
            raise errors.ConnectionFailed(f"{path}: the connection broke while it was read ({type(err).__name__}: {err})") from err

    def upload_many(self, files: Iterable[tuple[str, bytes]]) -> Sequence[models.Transferred]:
        """Writes many files, at most 1000. Each has its own result, in order, with error or None."""
        kind, form = form_of(files)
        headers = {"Content-Type": kind}
        path = self._path + "/upload"
        answer = self._transport.call("POST", path, content=form, kind=Kind.SAFE, deadline_s=constants.TRANSFER_S, headers=headers)
        return [models.Transferred.model_validate(item) for item in answer.json()["items"]]

    def download_many(self, paths: Iterable[str]) -> Sequence[models.Transferred]:
        """Reads many files, at most 1000 and 32 MiB together. Each has its own result, in order; content_of returns its bytes."""
        answer = self._transport.call(
            "POST", self._path + "/download", body={"paths": [*paths]}, kind=Kind.SAFE, deadline_s=constants.TRANSFER_S
        )
        return [models.Transferred.model_validate(item) for item in answer.json()["items"]]

    @contextmanager
    def open_archive(
        self, path: str, *, format: Literal["tar.gz", "tar", "zip"] = "tar.gz", deadline_s: float = constants.TRANSFER_S
    ) -> Iterator[Iterator[bytes]]:
        """All that is in a folder, as one archive with names relative to it, as it comes. Links and special files are not in it."""
        response, stack = self._transport.download(self._path + "/archive", {"path": path, "format": format}, {}, deadline_s)
        with stack:
            yield self._chunks(response, path)

    def download_archive(
        self, path: str, target: BinaryIO, *, format: Literal["tar.gz", "tar", "zip"] = "tar.gz", deadline_s: float = constants.TRANSFER_S
    ) -> int:
        """Copies the archive of a folder into target, and returns its number of bytes."""
        size = 0
        with self.open_archive(path, format=format, deadline_s=deadline_s) as chunks:
            for chunk in chunks:
                size += target.write(chunk)
        return size

    def upload_archive(self, path: str, archive: Source, *, deadline_s: float = constants.TRANSFER_S) -> models.Unpacked:
        """Writes what is in a tar, tar.gz or zip archive into a folder, which is made. Nothing is written of one that has links,
        paths that lead out, or more than there is room for."""
        answer = self._transport.call("PUT", self._path + "/archive", params={"path": path}, content=archive, deadline_s=deadline_s)
        return models.Unpacked.model_validate(answer.json())

    def watch(self, path: str, *, recursive: bool = True, deadline_s: float = constants.TRANSFER_S) -> Iterator[FileEvent]:
        """What changes in a folder, as it changes. The first event is "started", of the folder itself: from then on all is told.

        It ends when the thread's sandbox has ended. One that was cut off raises ConnectionFailed: list the folder and watch again."""
        params: dict[str, str | bool] = {"path": path, "recursive": recursive}
        try:
            for message in self._transport.events("GET", self._path + "/watch", params=params, deadline_s=deadline_s):
                if message.event == constants.EVENT_END:
                    return
                if message.event == constants.EVENT_ERROR:
                    problem = json.loads(message.data)
                    raise errors.from_answer(int(problem.get("status", 500)), {}, message.data.encode())
                if message.event == constants.EVENT_STARTED:
                    yield FileEvent(path, constants.EVENT_STARTED, True)
                elif message.event == constants.EVENT_CHANGE:
                    said = json.loads(message.data)
                    yield FileEvent(said["path"], said["change"], said["is_dir"])
        except httpx.HTTPError as err:
            raise errors.ConnectionFailed(f"{path}: the watch was cut off ({type(err).__name__}: {err})") from err
        raise errors.ConnectionFailed(f"{path}: the watch was cut off")

    def _get(self, what: str, **params: str | int | bool | None) -> object:
        return (self._transport.call("GET", self._path + what, params=params)).json()


def content_of(item: models.Transferred) -> bytes | None:
    """The bytes of a file that download_many read; None when it has an error."""
    if item.content is None:
        return None
    return base64.b64decode(item.content) if item.encoding == "base64" else item.content.encode()
