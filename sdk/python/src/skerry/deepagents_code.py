"""Skerry for Deep Agents Code (`dcode`), which finds this by the entry point deepagents_code.sandbox_providers.

    dcode --sandbox skerry                          # a thread for this session
    dcode --sandbox skerry --sandbox-id my-thread   # a thread that stays

SKERRY_SERVER and SKERRY_API_KEY say which server. In ~/.deepagents/config.toml, [sandboxes.providers.skerry.params] may have template
(of the sandbox) and timeout_s (of a command).
"""

from __future__ import annotations

import secrets
from typing import Any

from skerry._versions import require

require("skerry.deepagents_code", "deepagents-code", "0.1.57", "0.2")

from deepagents_code.integrations.sandbox_provider import (  # noqa: E402
    SandboxError,
    SandboxInstallHint,
    SandboxProvider,
    SandboxProviderMetadata,
)

from skerry._constants import WORKSPACE  # noqa: E402
from skerry._sync.client import Client  # noqa: E402
from skerry.deepagents import SkerrySandbox  # noqa: E402
from skerry.errors import NotFound, SkerryError  # noqa: E402


class SkerryProvider(SandboxProvider):
    """Threads as sandboxes: the id of a sandbox is the name of its thread."""

    def __init__(self, client: Client | None = None) -> None:
        self._client = client or Client()

    @property
    def metadata(self) -> SandboxProviderMetadata:
        return SandboxProviderMetadata(
            name="skerry", working_dir=WORKSPACE, install=SandboxInstallHint(kind="package", name="skerry[deepagents-code]")
        )

    def get_or_create(
        self, *, sandbox_id: str | None = None, template: str | None = None, timeout_s: int = 300, **unknown: Any
    ) -> SkerrySandbox:
        if unknown:
            raise ValueError(f"a sandbox of Skerry takes the parameters template and timeout_s, and not {', '.join(sorted(unknown))}")
        thread = self._client.thread(sandbox_id or "dcode-" + secrets.token_hex(8))
        try:
            thread.acquire(template=template)
        except SkerryError as err:
            raise SandboxError(str(err)) from err
        return SkerrySandbox(thread, timeout_s=timeout_s)

    def delete(self, *, sandbox_id: str, **_: Any) -> None:
        try:
            self._client.thread(sandbox_id).delete()
        except NotFound:
            pass
        except SkerryError as err:
            raise SandboxError(str(err)) from err


__all__ = ["SkerryProvider"]
