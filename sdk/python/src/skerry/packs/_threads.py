"""Functions that block, beside the event loop."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Runs work, which must not raise, in a thread of its own.

    A thread of a pool would keep the program from ending while a tool hangs, and a pool that is full would keep others from beginning.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: T) -> None:
        if not future.done():
            future.set_result(value)

    def run() -> None:
        value = context.run(work)
        try:
            loop.call_soon_threadsafe(settle, value)
        except RuntimeError:
            pass  # the loop has ended, and nobody waits

    threading.Thread(target=run, name="skerry-pack-tool", daemon=True).start()
    return future
