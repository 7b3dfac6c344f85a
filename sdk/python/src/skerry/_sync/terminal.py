# Made from the async client by scripts/generate.py.
"""The terminal of an exec, over a WebSocket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from skerry import _constants as constants
from skerry import errors
from skerry._sync.transport import Transport


def join(transport: Transport, path: str, exec_id: str, after: int) -> Terminal:
    server = transport.server.replace("http", "ws", 1)
    query = f"?exec={exec_id}" + (f"&after={after}" if after else "")
    stack = ExitStack()
    try:
        ws = stack.enter_context(
            connect(
                server + path + query,
                additional_headers=transport.headers,
                open_timeout=transport.timeout_s,
                max_size=constants.MAX_SHOWN_FRAME,
            )
        )
    except InvalidStatus as err:
        answer = err.response
        raise errors.from_answer(
            answer.status_code, {k.lower(): v for k, v in answer.headers.raw_items()}, bytes(answer.body or b"")
        ) from err
    except (OSError, TimeoutError) as err:
        raise errors.ConnectionFailed(f"GET {path}: {err}") from err
    return Terminal(ws, stack)


class Terminal:
    """Bytes to and from a terminal. Iterating over it gives what it shows, until its program ends.

    Closing it never ends the exec. next is the number of the next event: a client that was cut off joins again with
    after=next - 1. exit is there when the program has ended.
    """

    def __init__(self, ws: Any, stack: ExitStack) -> None:
        self._ws, self._stack = ws, stack
        self.next = 1
        self.exit: dict[str, Any] | None = None

    def send(self, data: bytes | str) -> None:
        raw = data.encode() if isinstance(data, str) else data
        for at in range(0, len(raw), constants.SENT_FRAME):
            self._ws.send(raw[at : at + constants.SENT_FRAME])

    def resize(self, cols: int, rows: int) -> None:
        self._ws.send(json.dumps({"resize": {"cols": cols, "rows": rows}}))

    def __iter__(self) -> Iterator[bytes]:
        try:
            while self.exit is None:
                frame = self._ws.recv()
                if isinstance(frame, bytes):
                    self.next += 1
                    yield frame
                    continue
                said = json.loads(frame)
                self.next = said.get("next", self.next)
                self.exit = said.get("exit")
        except ConnectionClosed as err:
            if self.exit is None:
                raise errors.ConnectionFailed(f"the terminal was cut off before event {self.next}: {err}") from err

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
