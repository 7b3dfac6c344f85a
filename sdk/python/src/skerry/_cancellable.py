"""Runs of a sync thread for frameworks that are asynchronous and start event loops as they like."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

from skerry import _constants as constants
from skerry import errors
from skerry._results import Event, ExecResult
from skerry._sync.thread import Thread


async def result_of(thread: Thread, begin: Callable[[], Iterator[Event]]) -> ExecResult:
    """The result of what begin starts. When the caller is cancelled, the exec is killed."""
    run = _Run(thread)
    work = asyncio.ensure_future(asyncio.to_thread(run.wait, begin))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        work.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # how it ended interests nobody any more
        await asyncio.to_thread(run.cancel)
        raise


class _Run:
    def __init__(self, thread: Thread) -> None:
        self._thread = thread
        self._lock = threading.Lock()
        self._exec_id = ""
        self._cancelled = False

    def wait(self, begin: Callable[[], Iterator[Event]]) -> ExecResult:
        for event in begin():
            if event.type == constants.EVENT_STARTED:
                with self._lock:
                    self._exec_id = str(event.detail["exec_id"])
                    cancelled = self._cancelled
                if cancelled:
                    self._kill()
            if event.result is not None:
                return event.result
        raise errors.OutcomeUnknown("the events of the exec ended without its result")

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
        self._kill()

    def _kill(self) -> None:
        if self._exec_id:
            try:
                self._thread.get_exec(self._exec_id).kill()
            except errors.APIError:
                pass  # it has ended


def exit_code(result: ExecResult) -> int:
    """As a shell says it: 124 after the deadline, 137 of what was killed."""
    if result.status == constants.STATUS_TIMEOUT:
        return 124
    if result.status == constants.STATUS_EXITED and result.exit_code is not None:
        return result.exit_code
    return 137


def with_reason(result: ExecResult, output: str) -> str:
    """output with what it does not say: why the exec ended, and where the rest of the output is."""
    notes = []
    if result.status == constants.STATUS_TIMEOUT:
        notes.append("ended at its deadline")
    elif result.status == constants.STATUS_OOM:
        notes.append("ended: it took more memory than there is")
    elif result.status != constants.STATUS_EXITED:
        notes.append(f"{result.status}: {result.detail or 'ended from outside'}")
    if result.truncated and result.stdout_path:
        notes.append(f"all of the output is in {result.stdout_path}")
    return "\n".join([*([output] if output else []), *(f"[{n}]" for n in notes)])
