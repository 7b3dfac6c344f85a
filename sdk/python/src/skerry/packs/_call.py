"""What a tool knows of the call that it answers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Caller:
    """For whom a call is made."""

    tenant: str = ""
    user: str = ""
    thread: str = ""


@dataclass
class Running:
    """A call as its tool sees it. The tool may run in a thread; progress has to be safe to call from there."""

    caller: Caller
    progress: Callable[[float, float, str], None]
    ended: threading.Event = field(default_factory=threading.Event)  # the caller waits no longer


running: ContextVar[Running] = ContextVar("skerry.packs.running")


def current() -> Running:
    try:
        return running.get()
    except LookupError:
        raise RuntimeError("no call of a tool runs here: this function is for tools of a pack") from None


def caller() -> Caller:
    """For whom the call is made that this tool answers."""
    return current().caller


def progress(done: float, total: float = 0, message: str = "") -> None:
    """Tells the caller how far the call is. total is 0 when it is not known."""
    current().progress(done, total, message)


def cancelled(wait_s: float = 0) -> bool:
    """Reports whether the caller gave the call up, or its deadline passed. It waits up to wait_s seconds for that, as a sleep that ends
    early. An async tool need not ask: asyncio.CancelledError reaches it at its next await, and waiting here would block the event loop.
    """
    ended = current().ended
    return ended.wait(wait_s) if wait_s > 0 else ended.is_set()
