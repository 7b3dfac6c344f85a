# Made from the async client by scripts/generate.py.
"""The file operations of a deepagents backend, on the file routes of the API: no command runs, and no sandbox starts."""

from __future__ import annotations

import base64
import posixpath
from collections.abc import Callable

from deepagents.backends.protocol import (
    DeleteResult,
    EditResult,
    FileDownloadResponse,
    FileInfo,
    FileUploadResponse,
    GlobResult,
    GrepMatch,
    GrepResult,
    LsResult,
    ReadResult,
    WriteResult,
)
from deepagents.backends.utils import (
    _get_backend_read_file_type,
    compile_grep_include_glob,
)

from skerry import errors, models
from skerry._constants import USER_DATA, WORKSPACE
from skerry._sync.files import Files

# As deepagents says it. Its constant for it is newer than 0.7.6.
EMPTY_OLD_STRING = "Error: old_string cannot be empty. Provide the exact text to replace."

EMPTY_FILE = "System reminder: File exists but has empty contents"
MAX_PREVIEW = 500 * 1024
MAX_MATCHES = 1000


def is_native(path: str | None) -> bool:
    """Whether the API reaches path. What it does not reach is in the sandbox alone."""
    return path is None or posixpath.normpath(path).startswith((USER_DATA, "/mnt/skills", "/mnt/plugins", "/mnt/code-api"))


def search_root(path: str | None) -> str:
    """Where a search begins. The root of a thread's files is /mnt/user-data: nothing else is worth a search of all there is."""
    if not path:
        return WORKSPACE
    return USER_DATA if posixpath.normpath(path) in ("/", "//", "/mnt") else posixpath.normpath(path)


class BadPattern(ValueError):
    """A pattern that deepagents refuses."""


def include(pattern: str) -> tuple[str, Callable[[str], bool]]:
    """The pattern for the server, which finds at least all, and what deepagents' own rules take of it."""
    if ".." in pattern.split("/"):  # deepagents 0.7.6 does not mind
        raise BadPattern("'..' leads out of the folder")
    try:
        matches = compile_grep_include_glob(pattern)
    except ValueError as err:  # of a type that 0.7.6 does not have
        raise BadPattern(str(err)) from err
    return (pattern.lstrip("/") if "/" in pattern else "**/" + pattern), matches


def code_of(err: errors.SkerryError) -> str:
    """The error as the protocol's words have it, where it has one."""
    if isinstance(err, errors.NotFound):
        return "file_not_found"
    if isinstance(err, errors.Forbidden):
        return "permission_denied"
    if isinstance(err, errors.QuotaExceeded):
        return "quota_exceeded"
    return "invalid_path" if isinstance(err, (errors.Invalid, errors.Conflict)) else str(err)


def info(entry: models.FileEntry) -> FileInfo:
    return FileInfo(path=entry.path, is_dir=entry.is_dir, size=entry.bytes, modified_at=entry.modified_at.isoformat())


def window(path: str, text: models.FileText, offset: int) -> ReadResult:
    """A read of lines, as the protocol wants it: without the last line end."""
    if text.end_line <= offset:
        return ReadResult(error=f"File '{path}': offset {offset} is beyond the end: the file has {text.total_lines} lines")
    content = text.content.replace("\r\n", "\n").removesuffix("\n")
    if text.truncated:
        content += "\n\n[This line is longer than what is shown of it.]"
    return ReadResult(
        file_data={"content": content, "encoding": "utf-8", "modified_at": text.modified_at.isoformat()},
        total_lines=text.total_lines,
        start_line=text.start_line,
        end_line=text.end_line,
        next_offset=text.next_offset,
    )


class BackendFiles:
    def __init__(self, files: Files) -> None:
        self._files = files

    def ls(self, path: str) -> LsResult:
        try:
            listing = self._files.list(posixpath.normpath(path))
        except errors.SkerryError as err:
            return LsResult(error=f"Path '{path}': {code_of(err)}")
        return LsResult(entries=[info(entry) for entry in listing.items])

    def read(self, path: str, offset: int, limit: int) -> ReadResult:
        offset, limit = max(int(offset), 0), max(int(limit), 0)
        try:
            entry = self._files.stat(path)
            if entry.is_dir:
                return ReadResult(error=f"File '{path}': not_a_file")
            if entry.bytes == 0:
                return ReadResult(file_data={"content": EMPTY_FILE, "encoding": "utf-8"})
            if _get_backend_read_file_type(path) != "text":
                return self._binary(path, entry.bytes)
            if limit == 0:
                return ReadResult(file_data={"content": "", "encoding": "utf-8"}, no_lines_requested=True)
            text = self._files.read(path, offset=offset, limit=min(limit, 100_000))
        except errors.NotFound:
            return ReadResult(error=f"File '{path}': file_not_found")
        except errors.SkerryError as err:
            return ReadResult(error=f"File '{path}': {err}")
        if text.encoding == "base64":
            return self._binary(path, entry.bytes)
        return window(path, text, offset)

    def _binary(self, path: str, size: int) -> ReadResult:
        if size > MAX_PREVIEW:
            return ReadResult(error=f"File '{path}': Binary file exceeds maximum preview size of {MAX_PREVIEW} bytes")
        try:
            raw = self._files.download(path)
        except errors.SkerryError as err:
            return ReadResult(error=f"File '{path}': {code_of(err)}")
        return ReadResult(file_data={"content": base64.b64encode(raw).decode(), "encoding": "base64"})

    def write(self, path: str, content: str) -> WriteResult:
        try:
            self._files.upload(path, content.encode())
        except errors.SkerryError as err:
            return WriteResult(error=f"Failed to write file '{path}': {err}")
        return WriteResult(path=path)

    def edit(self, path: str, old: str, new: str, replace_all: bool) -> EditResult:
        if not old:
            return EditResult(error=EMPTY_OLD_STRING)
        # A read shows CRLF as LF, so what is to be replaced may have lost it; the file's own line ends stay.
        plain = old.replace("\r\n", "\n")
        tries = [
            (old, new),
            (plain.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")),
            (plain, new.replace("\r\n", "\n")),
        ]
        try:
            for was, becomes in dict(tries).items():
                try:
                    edited = self._files.edit(path, was, becomes, replace_all=replace_all)
                    return EditResult(path=path, occurrences=edited.occurrences)
                except errors.Conflict as err:
                    if any(e.field == "old" and e.detail == "not unique" for e in err.errors):
                        text = f"Error: String '{old}' appears multiple times. Use replace_all=True to replace all occurrences."
                        return EditResult(error=text)
                    if not any(e.field == "old" for e in err.errors):
                        raise
        except errors.NotFound:
            return EditResult(error=f"Error: File '{path}' not found")
        except errors.SkerryError as err:
            return EditResult(error=f"Error editing file '{path}': {err}")
        return EditResult(error=f"Error: String not found in file: '{old}'")

    def delete(self, path: str) -> DeleteResult:
        try:
            self._files.delete(path, recursive=True)
        except errors.NotFound:
            return DeleteResult(error=f"Error: '{path}' not found")
        except errors.SkerryError as err:
            return DeleteResult(error=f"Error deleting file '{path}': {err}")
        return DeleteResult(path=path)

    def glob(self, pattern: str, path: str | None) -> GlobResult:
        root = search_root(path)
        try:
            wanted, matches = include(pattern)
            found = self._files.glob(wanted, root)
        except BadPattern as err:
            return GlobResult(error=f"Invalid glob pattern '{pattern}': {err}")
        except errors.SkerryError as err:
            return GlobResult(error=f"Path '{path}': {err}")
        items = [info(e) for e in found.items if not e.is_dir and not e.symlink and matches(posixpath.relpath(e.path, root))]
        result = GlobResult(matches=items, truncated=found.truncated)
        if found.truncated:
            result.truncation_reason = "budget"  # deepagents 0.7.6 does not know it, and does not mind
        return result

    def grep(self, pattern: str, path: str | None, glob: str | None, max_count: int | None) -> GrepResult:
        root = search_root(path)
        most = MAX_MATCHES if max_count is None else min(max(max_count, 0), MAX_MATCHES)
        if most == 0:
            return GrepResult(matches=[], truncated=True)
        try:
            wanted, matches = include(glob) if glob else (None, None)
            found = self._files.grep(pattern, root, glob=wanted, max=most)
            if matches and glob and len(found.items) == most:
                # The server's rules take more than deepagents' do: enough are wanted after what these leave out.
                found = self._files.grep(pattern, root, glob=wanted, max=MAX_MATCHES)
        except BadPattern as err:
            return GrepResult(error=f"Invalid glob pattern '{glob}': {err}")
        except errors.NotFound:
            return GrepResult(error=f"Path '{path}': path_not_found")
        except errors.SkerryError as err:
            return GrepResult(error=f"Error: {err}")
        items = [GrepMatch(path=m.path, line=m.line, text=m.text) for m in found.items if not matches or self._in(m.path, root, matches)]
        return GrepResult(matches=items[:most], truncated=found.truncated or len(items) > most)

    def _in(self, path: str, root: str, matches: Callable[[str], bool]) -> bool:
        return path == root or matches(posixpath.relpath(path, root))  # a file that is named itself is searched whatever the glob

    def upload(self, path: str, content: bytes) -> FileUploadResponse:
        try:
            self._files.upload(path, content)
        except errors.SkerryError as err:
            return FileUploadResponse(path=path, error=self._error(path, err))
        return FileUploadResponse(path=path)

    def download(self, path: str) -> FileDownloadResponse:
        try:
            return FileDownloadResponse(path=path, content=self._files.download(path))
        except errors.SkerryError as err:
            return FileDownloadResponse(path=path, error=self._error(path, err))

    def _error(self, path: str, err: errors.SkerryError) -> str:
        if isinstance(err, (errors.Invalid, errors.Conflict)):
            try:
                if (self._files.stat(path)).is_dir:
                    return "is_directory"
            except errors.SkerryError:
                pass  # the first error says more
        return code_of(err)
