"""An async client beside a sync one, for code that is called both ways."""

from __future__ import annotations

import asyncio
import weakref

from skerry._async.client import AsyncClient
from skerry._sync.client import Client
from skerry._sync.transport import Transport


class AsyncTwins:
    """Gives an async client with the settings of a sync one: one for each event loop, because connections belong to a loop. One
    that is given is used in its place, by whoever is in its loop."""

    def __init__(self, client: Client | Transport, given: AsyncClient | None = None) -> None:
        self._given = given
        self._transport = client if isinstance(client, Transport) else client._transport
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncClient] = weakref.WeakKeyDictionary()

    def client(self) -> AsyncClient:
        if self._given is not None:
            return self._given
        if not self._transport.has_own_http:
            raise ValueError("the client has an http client of yours, which cannot be used by async calls: pass async_client, too")
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            t = self._transport
            client = self._clients[loop] = AsyncClient(t.server, timeout_s=t.timeout_s, retries=t.retries)
            client._transport.headers = dict(t.headers)
        return client
