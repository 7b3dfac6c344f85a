"""Skerry threads as sandboxes of OpenAI's Agents SDK.

    from agents import RunConfig, Runner
    from agents.sandbox import SandboxAgent, SandboxRunConfig
    from skerry.openai_agents import SkerrySandboxClient

    agent = SandboxAgent(name="Analyst", instructions="…")
    await Runner.run(agent, "…", run_config=RunConfig(sandbox=SandboxRunConfig(client=SkerrySandboxClient())))

Each session is a thread. Its workspace is /mnt/user-data/workspace, and its skills and tools are where every thread has them.
"""

from __future__ import annotations

import io
import tarfile
import uuid
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from skerry._versions import require

require("skerry.openai_agents", "openai-agents", "0.24", "0.25")

from agents.sandbox import Manifest  # noqa: E402
from agents.sandbox.errors import (  # noqa: E402
    ConfigurationError,
    ErrorCode,
    ExecTimeoutError,
    ExecTransportError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceStartError,
    WorkspaceWriteTypeError,
)
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession  # noqa: E402
from agents.sandbox.session.bounded_read import collect_bounded  # noqa: E402
from agents.sandbox.session.dependencies import Dependencies  # noqa: E402
from agents.sandbox.session.manager import Instrumentation  # noqa: E402
from agents.sandbox.session.runtime_helpers import RESOLVE_WORKSPACE_PATH_HELPER, RuntimeHelperScript  # noqa: E402
from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions  # noqa: E402
from agents.sandbox.session.sandbox_session import SandboxSession  # noqa: E402
from agents.sandbox.session.sandbox_session_state import SandboxSessionState  # noqa: E402
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot  # noqa: E402
from agents.sandbox.types import ExecResult, User  # noqa: E402
from agents.sandbox.util.tar_utils import UnsafeTarMemberError, validate_tarfile  # noqa: E402

from skerry import _constants as constants  # noqa: E402
from skerry._async.client import AsyncClient  # noqa: E402
from skerry._async.thread import Thread  # noqa: E402
from skerry._cancellable import exit_code  # noqa: E402
from skerry._results import ExecResult as Result  # noqa: E402
from skerry.errors import NotFound, SkerryError  # noqa: E402

MAX_OUTPUT = 10 << 20


class SkerrySandboxClientOptions(BaseSandboxClientOptions):
    """Of a new session. With thread it is that thread, which delete keeps; without, one of its own."""

    type: Literal["skerry"] = "skerry"
    thread: str | None = None
    template: str | None = None
    timeout_s: float = 120
    """How long a command may take that has no timeout of its own, at most an hour."""


class SkerrySandboxSessionState(SandboxSessionState):
    """What is kept of a session. The key is not in it: it is read from SKERRY_API_KEY."""

    type: Literal["skerry"] = "skerry"
    thread: str
    owned: bool
    template: str | None = None
    timeout_s: float = 120


class SkerrySandboxSession(BaseSandboxSession):
    """A thread. Its sandbox starts with the session and ends with it; its files stay until the client deletes the session."""

    state: SkerrySandboxSessionState

    def __init__(self, thread: Thread, state: SkerrySandboxSessionState) -> None:
        self.thread = thread
        self.state = state

    # The sandbox.

    async def _ensure_backend_started(self) -> None:
        env = {k: v for k, v in (await self.state.manifest.environment.resolve()).items() if v is not None}
        try:
            await self.thread.acquire(template=self.state.template, env=env or None)
        except SkerryError as err:
            raise WorkspaceStartError(path=Path(self.state.manifest.root), cause=err) from err

    async def _prepare_backend_workspace(self) -> None:
        made = await self._run(["mkdir", "-p", "--", self.state.manifest.root], self.state.timeout_s, cwd=None)
        if not made.ok:
            raise WorkspaceStartError(path=Path(self.state.manifest.root), context={"stderr": made.stderr})

    async def running(self) -> bool:
        try:
            return (await self.thread.info()).sandbox is not None
        except NotFound:
            return False

    async def _shutdown_backend(self) -> None:
        await self.thread.release()

    # Commands.

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        argv = [str(part) for part in command]
        seconds = min(timeout or self.state.timeout_s, float(constants.MAX_EXEC_TIMEOUT_S))
        try:
            result = await self._run(argv, seconds, cwd=self.state.manifest.root)
        except SkerryError as err:
            raise ExecTransportError(command=argv, cause=err, message=str(err)) from err
        if result.status == constants.STATUS_TIMEOUT:
            raise ExecTimeoutError(command=argv, timeout_s=seconds)
        if result.status not in (constants.STATUS_EXITED, constants.STATUS_KILLED, constants.STATUS_OOM):
            raise ExecTransportError(command=argv, message=f"the command is {result.status}: {result.detail or 'ended from outside'}")
        return ExecResult(stdout=result.stdout_bytes, stderr=result.stderr_bytes, exit_code=exit_code(result))

    async def _run(self, argv: list[str], seconds: float, *, cwd: str | None) -> Result:
        return await self.thread.exec(argv, timeout_s=seconds, cwd=cwd, max_output_bytes=MAX_OUTPUT)

    def _prepare_exec_command(self, *command: str | Path, shell: bool | list[str], user: str | User | None) -> list[str]:
        self._refuse_user("exec", user)
        argv: list[str] = super()._prepare_exec_command(*command, shell=shell, user=user)
        return argv

    def _refuse_user(self, op: Literal["exec", "read", "write"], user: str | User | None) -> None:
        if user is not None:
            raise ConfigurationError(
                message="a sandbox of Skerry has one user: leave user out", error_code=ErrorCode.SANDBOX_CONFIG_INVALID, op=op, context={}
            )

    # Files.

    def _runtime_helpers(self) -> tuple[RuntimeHelperScript, ...]:
        return (RESOLVE_WORKSPACE_PATH_HELPER,)

    async def _validate_path_access(self, path: Path | str, *, for_write: bool = False) -> Path:
        checked: Path = await self._validate_remote_path_access(path, for_write=for_write)
        return checked

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        self._refuse_user("read", user)
        at = (await self._validate_path_access(path)).as_posix()
        try:
            return io.BytesIO(await self.thread.files.download(at))
        except NotFound as err:
            raise WorkspaceReadNotFoundError(path=path, cause=err) from err
        except SkerryError as err:
            raise WorkspaceArchiveReadError(path=path, cause=err) from err

    async def _read_bounded(self, path: Path, *, max_bytes: int) -> bytes:
        at = (await self._validate_path_access(path)).as_posix()
        try:
            async with self.thread.files.open(at) as chunks:
                content: bytes = await collect_bounded(chunks, max_bytes)
                return content
        except NotFound:
            raise WorkspaceReadNotFoundError(path=path) from None
        except SkerryError:
            raise WorkspaceArchiveReadError(path=path) from None

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        self._refuse_user("write", user)
        at = await self._validate_path_access(path, for_write=True)
        content = self._content(at, data)
        try:
            await self.thread.files.upload(at.as_posix(), content)
        except SkerryError as err:
            raise WorkspaceArchiveWriteError(path=path, cause=err) from err

    def _content(self, path: Path, data: io.IOBase) -> bytes:
        content: Any = data.read()
        if isinstance(content, str):
            return content.encode()
        if not isinstance(content, bytes | bytearray):
            raise WorkspaceWriteTypeError(path=path, actual_type=type(content).__name__)
        return bytes(content)

    # The workspace as an archive. tar makes and unpacks it in the sandbox, so that links and modes stay as they are.

    async def persist_workspace(self) -> io.IOBase:
        root = self._workspace_root_path()
        archive = self._archive()
        try:
            excluded = [f"--exclude=./{skipped.as_posix()}" for skipped in sorted(self._persist_workspace_skip_relpaths())]
            await self._tar("-cf", archive, "--no-wildcards", *excluded, "-C", root.as_posix(), ".")
            return io.BytesIO(await self.thread.files.download(archive))
        except SkerryError as err:
            raise WorkspaceArchiveReadError(path=root, cause=err) from err
        finally:
            await self._drop(archive)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        root = self._workspace_root_path()
        content = self._content(root, data)
        archive = self._archive()
        try:
            with tarfile.open(fileobj=io.BytesIO(content)) as tar:
                validate_tarfile(tar, allow_external_symlink_targets=False)
            await self.thread.files.upload(archive, content)
            await self._tar("-xf", archive, "-C", root.as_posix())
        except (SkerryError, UnsafeTarMemberError, tarfile.TarError) as err:
            raise WorkspaceArchiveWriteError(path=root, cause=err) from err
        finally:
            await self._drop(archive)

    def _archive(self) -> str:
        """Where an archive lies for a moment: beside the workspace, where the files API has it."""
        return f"{constants.USER_DATA}/outputs/.openai-agents-{uuid.uuid4().hex}.tar"

    async def _tar(self, *args: str) -> None:
        (await self._run(["tar", *args], float(constants.MAX_EXEC_TIMEOUT_S), cwd=None)).check()

    async def _drop(self, archive: str) -> None:
        try:
            await self.thread.files.delete(archive)
        except SkerryError:
            pass  # it was not made; or it goes with the thread


class SkerrySandboxClient(BaseSandboxClient[SkerrySandboxClientOptions | None]):
    """Makes, resumes and deletes sessions. client is a connection of yours; without one it is made from the environment."""

    backend_id = "skerry"
    supports_default_options = True

    def __init__(
        self,
        client: AsyncClient | None = None,
        *,
        instrumentation: Instrumentation | None = None,
        dependencies: Dependencies | None = None,
    ) -> None:
        self._client = client or AsyncClient()
        self._instrumentation = instrumentation or Instrumentation()
        self._dependencies = dependencies

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: SkerrySandboxClientOptions | None = None,
    ) -> SandboxSession:
        options = options or SkerrySandboxClientOptions()
        manifest = manifest or Manifest()
        if manifest.root == Manifest().root:
            manifest = manifest.model_copy(update={"root": constants.WORKSPACE})
        if not PurePosixPath(manifest.root).is_relative_to(constants.USER_DATA):
            raise ConfigurationError(
                message=f"the root of a workspace is {manifest.root}: it has to be below {constants.USER_DATA}, or left out",
                error_code=ErrorCode.SANDBOX_CONFIG_INVALID,
                op="start",
                context={},
            )
        self._validate_manifest_for_create(manifest)
        session_id = uuid.uuid4()
        state = SkerrySandboxSessionState(
            session_id=session_id,
            manifest=manifest,
            snapshot=resolve_snapshot(snapshot, str(session_id)),
            thread=options.thread or f"openai-{session_id.hex}",
            owned=options.thread is None,
            template=options.template,
            timeout_s=options.timeout_s,
        )
        return self._session(state)

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        if not isinstance(state, SkerrySandboxSessionState):
            raise TypeError(f"a session of Skerry is resumed from its own state, not from a {type(state).__name__}")
        state.assert_path_grants_rebound()
        session = self._session(state)
        try:
            await self._client.thread(state.thread).info()
            session._inner._set_start_state_preserved(True, system=False)
        except NotFound:
            state.workspace_root_ready = False  # the thread was deleted: its files come from the snapshot, if there is one
        return session

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """Deletes the thread with its files, or of a thread that the options named the sandbox alone."""
        inner = session._inner
        if not isinstance(inner, SkerrySandboxSession):
            raise TypeError(f"a {type(inner).__name__} is not a session of Skerry")
        await (inner.thread.delete() if inner.state.owned else inner.thread.release())
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, SkerrySandboxSessionState)

    def _session(self, state: SkerrySandboxSessionState) -> SandboxSession:
        inner = SkerrySandboxSession(self._client.thread(state.thread), state)
        return self._wrap_session(inner, instrumentation=self._instrumentation)


__all__ = ["SkerrySandboxClient", "SkerrySandboxClientOptions", "SkerrySandboxSession", "SkerrySandboxSessionState"]
