"""A Skerry thread as a sandbox of deepagents.

    from deepagents import create_deep_agent
    from skerry import Client
    from skerry.deepagents import SkerrySandbox

    agent = create_deep_agent(model=..., backend=SkerrySandbox(Client().thread("my-thread")))

Files under /mnt are read and written by the API: without a command, without python3 in the image, and while no sandbox runs.
Other paths (/tmp, say) are in the running sandbox alone, and are reached by commands there.
"""

from __future__ import annotations

import posixpath
import shlex
import uuid

from skerry._versions import require

# What this is tested with (docs/compatibility.md). deepagents changes what a backend must do in minor releases, so others are
# refused here, where it can be said, and not somewhere in an agent's run.
require("skerry.deepagents", "deepagents", "0.7.6", "0.8")

from deepagents.backends.protocol import (  # noqa: E402
    DeleteResult,
    EditResult,
    ExecuteResponse,
    FileDownloadResponse,
    FileUploadResponse,
    GlobResult,
    GrepResult,
    LsResult,
    ReadResult,
    WriteResult,
)
from deepagents.backends.sandbox import BaseSandbox  # noqa: E402

from skerry import _constants as constants  # noqa: E402
from skerry._async.client import AsyncClient  # noqa: E402
from skerry._async.deepagents_files import BackendFiles as AsyncBackendFiles  # noqa: E402
from skerry._async.thread import Thread as AsyncThread  # noqa: E402
from skerry._loops import AsyncTwins  # noqa: E402
from skerry._results import ExecResult  # noqa: E402
from skerry._sync.deepagents_files import BackendFiles, is_native  # noqa: E402
from skerry._sync.thread import Thread  # noqa: E402
from skerry.errors import SkerryError  # noqa: E402

MAX_OUTPUT = 1 << 20  # of a command


class SkerrySandbox(BaseSandbox):
    """A thread as a backend. The sandbox starts with the first command.

    timeout_s is a command's, when the agent does not say. The async methods have connections of their own, for each event loop, or those of
    async_client.
    """

    def __init__(self, thread: Thread, *, timeout_s: int = 300, async_client: AsyncClient | None = None) -> None:
        self.thread = thread
        self._timeout_s = timeout_s
        self._files = BackendFiles(thread.files)
        self._twins = AsyncTwins(thread._transport, async_client)

    @property
    def id(self) -> str:
        return self.thread.id

    # Commands.

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        seconds = self._seconds(timeout)
        try:
            return answer(self.thread.exec(merged(command), timeout_s=seconds, max_output_bytes=MAX_OUTPUT, leave_processes=True), seconds)
        except SkerryError as err:
            return ExecuteResponse(output=f"Error: {err}", exit_code=None)

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        seconds = self._seconds(timeout)
        try:
            return answer(
                await self._athread().exec(merged(command), timeout_s=seconds, max_output_bytes=MAX_OUTPUT, leave_processes=True), seconds
            )
        except SkerryError as err:
            return ExecuteResponse(output=f"Error: {err}", exit_code=None)

    def _seconds(self, timeout: int | None) -> int:
        # 0 asks for no limit; the server's most is an hour.
        most = int(constants.MAX_EXEC_TIMEOUT_S)
        return self._timeout_s if timeout is None else min(timeout, most) if timeout > 0 else most

    # Files.

    def ls(self, path: str) -> LsResult:
        return self._files.ls(path) if is_native(path) else super().ls(path)

    async def als(self, path: str) -> LsResult:
        return await self._afiles().ls(path) if is_native(path) else await super().als(path)

    def read(self, file_path: str, offset: int = 0, limit: int = constants.READ_LINES) -> ReadResult:
        return self._files.read(file_path, offset, limit) if is_native(file_path) else super().read(file_path, offset, limit)

    async def aread(self, file_path: str, offset: int = 0, limit: int = constants.READ_LINES) -> ReadResult:
        return (
            await self._afiles().read(file_path, offset, limit) if is_native(file_path) else await super().aread(file_path, offset, limit)
        )

    def write(self, file_path: str, content: str) -> WriteResult:
        return self._files.write(file_path, content) if is_native(file_path) else super().write(file_path, content)

    async def awrite(self, file_path: str, content: str) -> WriteResult:
        return await self._afiles().write(file_path, content) if is_native(file_path) else await super().awrite(file_path, content)

    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        if is_native(file_path):
            return self._files.edit(file_path, old_string, new_string, replace_all)
        return super().edit(file_path, old_string, new_string, replace_all)

    async def aedit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        if is_native(file_path):
            return await self._afiles().edit(file_path, old_string, new_string, replace_all)
        return await super().aedit(file_path, old_string, new_string, replace_all)

    def delete(self, file_path: str) -> DeleteResult:
        return self._files.delete(file_path) if is_native(file_path) else super().delete(file_path)

    async def adelete(self, file_path: str) -> DeleteResult:
        return await self._afiles().delete(file_path) if is_native(file_path) else await super().adelete(file_path)

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        return self._files.glob(pattern, path) if searched(path) else super().glob(pattern, path)

    async def aglob(self, pattern: str, path: str | None = None) -> GlobResult:
        return await self._afiles().glob(pattern, path) if searched(path) else await super().aglob(pattern, path)

    def grep(self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None) -> GrepResult:
        if searched(path):
            return self._files.grep(pattern, path, glob, max_count)
        return super().grep(pattern, path, glob, max_count=max_count)

    async def agrep(self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None) -> GrepResult:
        if searched(path):
            return await self._afiles().grep(pattern, path, glob, max_count)
        return await super().agrep(pattern, path, glob, max_count=max_count)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return [self._upload(path, content) for path, content in files]

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return [await self._aupload(path, content) for path, content in files]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return [self._download(path) for path in paths]

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return [await self._adownload(path) for path in paths]

    def _upload(self, path: str, content: bytes) -> FileUploadResponse:
        if is_native(path):
            return self._files.upload(path, content)
        if not path.startswith("/") or "\0" in path:
            return FileUploadResponse(path=path, error="invalid_path")
        way = waypoint()
        sent = self._files.upload(way, content)
        if sent.error:
            return FileUploadResponse(path=path, error=sent.error)
        return FileUploadResponse(path=path, error=self._copy(PUT, path, way))

    async def _aupload(self, path: str, content: bytes) -> FileUploadResponse:
        if is_native(path):
            return await self._afiles().upload(path, content)
        if not path.startswith("/") or "\0" in path:
            return FileUploadResponse(path=path, error="invalid_path")
        way = waypoint()
        sent = await self._afiles().upload(way, content)
        if sent.error:
            return FileUploadResponse(path=path, error=sent.error)
        return FileUploadResponse(path=path, error=await self._acopy(PUT, path, way))

    def _download(self, path: str) -> FileDownloadResponse:
        if is_native(path):
            return self._files.download(path)
        way = waypoint()
        if error := "invalid_path" if not path.startswith("/") or "\0" in path else self._copy(GET, path, way):
            return FileDownloadResponse(path=path, error=error)
        got = self._files.download(way)
        self._files.delete(way)
        return FileDownloadResponse(path=path, content=got.content, error=got.error)

    async def _adownload(self, path: str) -> FileDownloadResponse:
        if is_native(path):
            return await self._afiles().download(path)
        way = waypoint()
        if error := "invalid_path" if not path.startswith("/") or "\0" in path else await self._acopy(GET, path, way):
            return FileDownloadResponse(path=path, error=error)
        got = await self._afiles().download(way)
        await self._afiles().delete(way)
        return FileDownloadResponse(path=path, content=got.content, error=got.error)

    def _copy(self, script: str, path: str, way: str) -> str | None:
        try:
            return copy_error(self.thread.exec(["sh", "-c", script, "copy", path, way], timeout_s=60))
        except SkerryError as err:
            return str(err)

    async def _acopy(self, script: str, path: str, way: str) -> str | None:
        try:
            return copy_error(await self._athread().exec(["sh", "-c", script, "copy", path, way], timeout_s=60))
        except SkerryError as err:
            return str(err)

    def _athread(self) -> AsyncThread:
        return self._twins.client().thread(self.thread.id)

    def _afiles(self) -> AsyncBackendFiles:
        return AsyncBackendFiles(self._athread().files)


# How bytes get to places outside of /mnt, and from there: by a file in the workspace. Names are arguments, never part of a
# script. The codes say why not.
PUT = """trap 'rm -f -- "$2"' EXIT
[ -d "$1" ] && exit 93
mkdir -p -- "$(dirname -- "$1")" && cat -- "$2" > "$1" || exit 94"""
GET = """[ -e "$1" ] || exit 91
[ -d "$1" ] && exit 93
[ -r "$1" ] && [ -f "$1" ] || exit 94
cat -- "$1" > "$2" || { rm -f -- "$2"; exit 95; }"""
COPY_ERRORS = {91: "file_not_found", 93: "is_directory", 94: "permission_denied", 95: "quota_exceeded"}


def waypoint() -> str:
    return f"{constants.WORKSPACE}/.skerry-copy-{uuid.uuid4().hex}"


def copy_error(result: ExecResult) -> str | None:
    if result.ok:
        return None
    return COPY_ERRORS.get(result.exit_code or -1, f"{result.status}: {result.output[:500]}")


def searched(path: str | None) -> bool:
    """Whether the API searches: a search of everything means the thread's files."""
    return is_native(path) or posixpath.normpath(path or "/") in ("/", "//", "/mnt")


def merged(command: str) -> str:
    """The protocol wants stdout and stderr as one, in the order in which they were written."""
    return "exec 2>&1\n" + command


def answer(result: ExecResult, seconds: int) -> ExecuteResponse:
    output, code = result.output, result.exit_code
    if result.status == constants.STATUS_TIMEOUT:
        output, code = f"{output}\n[The command was ended after {seconds} s.]", 124
    elif result.status == constants.STATUS_OOM:
        output, code = f"{output}\n[The command was ended: it took more memory than there is.]", 137
    elif result.status != constants.STATUS_EXITED:
        output, code = (
            f"{output}\n[{result.status}: {result.detail or 'the command was ended from outside'}]",
            137 if result.status == constants.STATUS_KILLED else None,
        )
    if result.truncated and result.stdout_path:
        output += f"\n[All of the output is in {shlex.quote(result.stdout_path)}.]"
    return ExecuteResponse(output=output, exit_code=code, truncated=result.truncated)


__all__ = ["SkerrySandbox"]
