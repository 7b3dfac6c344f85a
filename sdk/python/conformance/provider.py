"""The program that sdk/packs/conformance wants of a client library: python provider.py"""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from pydantic import BaseModel

from skerry.packs import TLS, BearerKey, Pack, Refused, SSHKeyFile, ToolError, caller, progress

pack = Pack("conformance", "1.0.0", "What a provider promises", max_parallel=4)
notes: list[str] = []


class Sum(BaseModel):
    sum: int


class Who(BaseModel):
    tenant: str
    user: str
    thread: str


class Names(BaseModel):
    names: list[str]


@pack.tool
def echo(text: str) -> str:
    """Returns a text"""
    return text


@pack.tool
def add(a: int, b: int) -> Sum:
    """Adds two numbers"""
    return Sum(sum=a + b)


@pack.tool
def fail(text: str) -> str:
    """Fails"""
    raise ToolError(text)


@pack.tool
def crash() -> str:
    """Fails in a way that nobody expects"""
    raise ZeroDivisionError("a secret of the program")


@pack.tool
def who() -> Who:
    """Returns the caller"""
    c = caller()
    return Who(tenant=c.tenant, user=c.user, thread=c.thread)


@pack.tool
def steps(n: int) -> str:
    """Reports its progress"""
    for i in range(1, n + 1):
        progress(i, n, f"step {i}")
    return "done"


@pack.tool
async def wait(name: str, ms: int) -> str:
    """Waits"""
    try:
        await asyncio.sleep(ms / 1000)
    except asyncio.CancelledError:
        notes.append(name)
        raise
    return "waited"


@pack.tool
def noted() -> Names:
    """Returns what wait noted"""
    return Names(names=list(notes))


@pack.tool
def large(bytes: int) -> str:
    """Returns a large text"""
    return "x" * bytes


@pack.tool(title="Has options", timeout_s=2, requires=["crm"], disclosure="hidden", annotations={"readOnlyHint": True})
def options() -> str:
    """Has options"""
    return "options"


@pack.tool
async def grow() -> str:
    """Adds a tool"""

    def grown() -> str:
        """Was added"""
        return "grown"

    pack.tool(grown)
    await pack.areload()
    return "reloaded"


@pack.tool
def spoil() -> str:
    """Adds a tool that the server refuses"""

    def broken() -> str:
        """Is refused"""
        return "broken"

    pack.tool(name="not a name")(broken)
    try:
        pack.reload()
    except Refused as err:
        return str(err)
    finally:
        pack.remove("not a name")
    return "the server took it"


def main() -> int:
    logging.basicConfig(level=logging.INFO)
    key, ssh_key = os.environ.get("SKERRY_KEY"), os.environ.get("SKERRY_SSH_KEY")
    credential = BearerKey(key) if key else SSHKeyFile(ssh_key) if ssh_key else None
    ca, certificate, tls_key = (os.environ.get(name) or None for name in ("SKERRY_CA", "SKERRY_CERTIFICATE", "SKERRY_CERTIFICATE_KEY"))
    tls = TLS(ca=ca, certificate=certificate, key=tls_key) if ca else None
    try:
        pack.run(os.environ["SKERRY_SERVER"], credential, tls=tls)
    except Refused as err:
        print(f"the server refuses the pack: {err}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
