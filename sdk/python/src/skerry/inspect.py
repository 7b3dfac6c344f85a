"""Skerry threads as sandboxes of Inspect evaluations.

    from inspect_ai import Task

    Task(dataset=…, solver=…, scorer=…, sandbox="skerry")

Each sample has a thread of its own, which ends with it. The package has an entry point, so Inspect finds the sandbox by its name.
"""

from __future__ import annotations

import errno
import shlex
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import PurePosixPath
from typing import Any, Literal, overload

from skerry._versions import require

require("skerry.inspect", "inspect-ai", "0.3.285", "0.4")

from inspect_ai.util import (  # noqa: E402
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    sandboxenv,
)
from pydantic import BaseModel, ConfigDict  # noqa: E402

from skerry import _constants as constants  # noqa: E402
from skerry._async.client import AsyncClient  # noqa: E402
from skerry._async.thread import Thread  # noqa: E402
from skerry._bounded import bounded  # noqa: E402
from skerry._cancellable import exit_code  # noqa: E402
from skerry._results import ExecResult as Result  # noqa: E402
from skerry.errors import NotFound, SkerryError  # noqa: E402

PREFIX = "inspect-"
# A request carries so much of standard input; more lies in a file for a moment.
INLINE_STDIN = 1 << 20
MAX_OUTPUT = 16 << 20  # that an answer has of one stream
CANNOT_EXECUTE = 126  # as a shell says it

# How the commands below say what they found.
DIRECTORY, MISSING, FORBIDDEN, TOO_LARGE = 81, 82, 83, 84
READ = f"""
[ -d "$1" ] && exit {DIRECTORY}
[ -e "$1" ] || exit {MISSING}
[ -r "$1" ] || exit {FORBIDDEN}
[ "$(stat -L -c %s -- "$1")" -le "$2" ] || exit {TOO_LARGE}
exec cat -- "$1"
"""
WRITE = f"""
[ -d "$1" ] && exit {DIRECTORY}
folder=$(dirname -- "$1")
mkdir -p -- "$folder" || exit {FORBIDDEN}
if [ -e "$1" ]; then [ -w "$1" ]; else [ -w "$folder" ]; fi || exit {FORBIDDEN}
exec cat > "$1"
"""


class SkerrySandboxConfig(BaseModel):
    """Of a task's sandboxes. A string, as in sandbox=("skerry", "data"), is the template."""

    model_config = ConfigDict(frozen=True)

    template: str | None = None
    timeout_s: float = 3600
    """How long a command may take that has no timeout of its own, at most an hour."""


@sandboxenv(name="skerry")
class SkerrySandboxEnvironment(SandboxEnvironment):
    """A thread. Commands run as its one user, in its workspace; files are read and written as that user may."""

    _kept: dict[str, AsyncClient] = {}  # noqa: RUF012 # of samples that were interrupted: task_cleanup ends them

    def __init__(self, client: AsyncClient, thread: Thread, config: SkerrySandboxConfig) -> None:
        super().__init__()
        self.thread = thread
        self._client = client
        self._config = config

    # What Inspect makes and ends.

    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        of_task = configured(config)
        client = AsyncClient()
        thread = client.thread(PREFIX + uuid.uuid4().hex)
        try:
            await thread.acquire(template=of_task.template)
        except BaseException:
            await client.aclose()
            raise
        return {"default": cls(client, thread, of_task)}

    @classmethod
    async def sample_cleanup(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, environments: dict[str, SandboxEnvironment], interrupted: bool
    ) -> None:
        for environment in environments.values():
            own = environment.as_type(cls)
            if interrupted:  # what awaits something now is cancelled, too
                cls._kept[own.thread.id] = own._client
                continue
            await _end(own._client, own.thread.id)

    @classmethod
    async def task_cleanup(cls, task_name: str, config: SandboxEnvironmentConfigType | None, cleanup: bool) -> None:
        for thread, client in list(cls._kept.items()):
            del cls._kept[thread]
            if cleanup:
                await _end(client, thread)
            else:
                print(
                    f"kept: the thread {thread}; `skerry exec -i -t {thread} -- bash` looks at it, `inspect sandbox cleanup skerry` ends it"
                )
                await client.aclose()

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        async with AsyncClient() as client:
            if id is not None:
                await client.thread(id).delete()
                return
            for thread in [t.thread_id async for t in client.threads() if t.thread_id.startswith(PREFIX)]:
                await client.thread(thread).delete()

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return SkerrySandboxConfig(**config)

    def default_polling_interval(self) -> float:
        return 0.5

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        self._refuse(user)
        try:
            running = (await self.thread.info()).sandbox is not None
        except NotFound:
            running = False
        if not running:
            raise ConnectionError(f"the thread {self.thread.id} has no sandbox")
        return SandboxConnection(type="skerry", command=shlex.join(["skerry", "exec", "-i", "-t", self.thread.id, "--", "bash", "-l"]))

    # Commands.

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """A command that reached its timeout is not run again: it has done something already."""
        self._refuse(user)
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        result = await self._run(cmd, input=input, cwd=cwd, env=env, timeout=timeout, most=limit)
        out, err = (text.decode("utf-8", "replace") for text in (result.stdout_bytes, result.stderr_bytes))
        if result.exit_code == CANNOT_EXECUTE and err.endswith("Permission denied\n"):
            raise PermissionError(errno.EACCES, "Permission denied", cmd[0])
        if result.truncated:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, out or err)
        if result.status != constants.STATUS_EXITED:
            err += f"{result.status}: {result.detail or 'ended from outside'}\n"
        code = exit_code(result)
        return ExecResult(success=code == 0, returncode=code, stdout=out, stderr=err)

    async def _run(
        self,
        cmd: Sequence[str],
        *,
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout: float | None = None,
        most: int = MAX_OUTPUT,
    ) -> Result:
        seconds = min(timeout or self._config.timeout_s, float(constants.MAX_EXEC_TIMEOUT_S))
        try:
            async with self._stdin(cmd, input) as (argv, stdin):
                result = await self.thread.exec(
                    argv,
                    stdin=stdin,
                    cwd=str(PurePosixPath(constants.WORKSPACE, cwd or "")),
                    env=env,
                    timeout_s=seconds,
                    max_output_bytes=min(most, MAX_OUTPUT),
                    leave_processes=True,
                )
        except SkerryError as err:
            raise SandboxUnavailableError(f"the command was not run: {err}") from err
        if result.status == constants.STATUS_TIMEOUT:
            raise TimeoutError(f"{cmd[0]}: it was ended after {seconds:g} s")
        if result.status == constants.STATUS_LOST:
            raise SandboxUnavailableError(f"{cmd[0]}: the sandbox ended: {result.detail or 'by itself'}")
        return result

    @asynccontextmanager
    async def _stdin(self, cmd: Sequence[str], input: str | bytes | None) -> AsyncIterator[tuple[Sequence[str], str | None]]:
        """The command, started by a shell, with its standard input: as text, or from a file that lies beside the workspace meanwhile."""
        if input is None or (isinstance(input, str) and len(input.encode()) <= INLINE_STDIN):
            yield ["/bin/sh", "-c", 'exec "$@"', "sh", *cmd], input
            return
        at = f"{constants.USER_DATA}/uploads/.inspect-{uuid.uuid4().hex}"
        await self.thread.files.upload(at, input.encode() if isinstance(input, str) else input)
        try:
            yield ["/bin/sh", "-c", 'exec "$@" < "$0"', at, *cmd], None
        finally:
            await self._delete(at)

    async def _delete(self, path: str) -> None:
        """Code in the sandbox may have been first."""
        with suppress(NotFound):
            await self.thread.files.delete(path)

    def _refuse(self, user: str | None) -> None:
        if user is not None:
            raise SandboxUserUnsupportedError(f"a sandbox of Skerry has one user, who is not {user!r}: leave user out")

    # Files, by commands: they are of the sandbox's user, wherever they lie.

    async def write_file(self, file: str, contents: str | bytes) -> None:
        result = await self._run(["/bin/sh", "-c", WRITE, "write", self._path(file)], input=contents)
        raise_for(result, file)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        result = await self._run(["/bin/sh", "-c", READ, "read", self._path(file), str(limit)])
        if result.exit_code == TOO_LARGE:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        raise_for(result, file)
        content = result.stdout_bytes
        if result.truncated and result.stdout_path:  # the server keeps all of it
            whole = await bounded(self.thread.files, result.stdout_path, limit)
            if whole is None:  # code in the sandbox made it another one
                raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
            content = whole
            await self._delete(result.stdout_path)
        return content.decode("utf-8") if text else content

    def _path(self, file: str) -> str:
        return str(PurePosixPath(constants.WORKSPACE, file))


def configured(config: SandboxEnvironmentConfigType | None) -> SkerrySandboxConfig:
    """What a task says of its sandboxes."""
    if config is None:
        return SkerrySandboxConfig()
    if isinstance(config, str):
        return SkerrySandboxConfig(template=PurePosixPath(config).name)  # Inspect takes it for the name of a file beside the task
    if isinstance(config, SkerrySandboxConfig):
        return config
    raise TypeError(
        f"the configuration of a sandbox of Skerry is a SkerrySandboxConfig or the name of a template, not a {type(config).__name__}"
    )


def raise_for(result: Result, file: str) -> None:
    """The error of a file that was not read or written."""
    match result.exit_code:
        case 0:
            return
        case code if code == DIRECTORY:
            raise IsADirectoryError(errno.EISDIR, "Is a directory", file)
        case code if code == MISSING:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", file)
        case code if code == FORBIDDEN:
            raise PermissionError(errno.EACCES, "Permission denied", file)
    raise OSError(errno.EIO, result.stderr_bytes.decode("utf-8", "replace").strip() or result.detail or result.status, file)


async def _end(client: AsyncClient, thread: str) -> None:
    try:
        await client.thread(thread).delete()
    except NotFound:
        pass  # it was ended from outside
    finally:
        await client.aclose()


__all__ = ["SkerrySandboxConfig", "SkerrySandboxEnvironment"]
