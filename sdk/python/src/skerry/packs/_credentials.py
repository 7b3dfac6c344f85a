"""How a pack proves to a server who it is."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ssl
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import grpc

from skerry._versions import require
from skerry.packs import packs_pb2 as pb

if TYPE_CHECKING:
    from asyncssh import SSHKeyPair

NAMESPACE = "skerry-pack@v1"  # of the signatures of packs. A server that asks for another one is none of Skerry.
AGENT_TIMEOUT_S = 10.0


class Credential(Protocol):
    """What proves to a server who a pack is."""

    def metadata(self) -> list[tuple[str, str]]:
        """The headers of the request."""

    async def sign(self, challenge: pb.Challenge, pack_id: str, address: str) -> bytes:
        """The signature of a challenge, or b"". OSError and ValueError say why there is none."""


@dataclass(frozen=True)
class BearerKey:
    """A key of the server with the role pack."""

    secret: str = field(repr=False)

    def metadata(self) -> list[tuple[str, str]]:
        return [("authorization", f"Bearer {self.secret}")]

    async def sign(self, challenge: pb.Challenge, pack_id: str, address: str) -> bytes:
        return b""


class NoCredential:
    """For a server without keys, or one that knows the TLS certificate."""

    def metadata(self) -> list[tuple[str, str]]:
        return []

    async def sign(self, challenge: pb.Challenge, pack_id: str, address: str) -> bytes:
        return b""


@dataclass(frozen=True)
class SSHKeyFile:
    """A private SSH key in a file without a passphrase. A certificate beside it, in FILE-cert.pub, is sent along. The files are read for
    each connection."""

    file: str | PathLike[str]

    def metadata(self) -> list[tuple[str, str]]:
        return []

    async def sign(self, challenge: pb.Challenge, pack_id: str, address: str) -> bytes:
        ssh = asyncssh()
        text = signed_text(challenge, pack_id, address)

        def sign() -> bytes:
            try:
                key = ssh.read_private_key(self.file)
                certificate = Path(f"{self.file}-cert.pub")
                certificates = [ssh.read_certificate(certificate)] if certificate.exists() else []
                pairs = ssh.load_keypairs([(key, certificates[0])] if certificates else [key])
            except ValueError as err:
                raise ValueError(f"the SSH key in {self.file}: {err}") from err
            return signature_of(pairs[0], text)

        return await asyncio.to_thread(sign)


@dataclass(frozen=True)
class SSHAgent:
    """A key in an SSH agent that listens on a unix socket, which SSH_AUTH_SOCK often names. fingerprint is the key's, as ssh-add -l
    prints it."""

    socket: str
    fingerprint: str

    def metadata(self) -> list[tuple[str, str]]:
        return []

    async def sign(self, challenge: pb.Challenge, pack_id: str, address: str) -> bytes:
        text = signed_text(challenge, pack_id, address)
        return await asyncio.wait_for(self._sign(text), AGENT_TIMEOUT_S)

    async def _sign(self, text: bytes) -> bytes:
        loop = asyncio.get_running_loop()
        async with asyncssh().connect_agent(self.socket) as agent:
            for pair in await agent.get_keys():
                if pair.has_cert or fingerprint_of(pair.public_data) != self.fingerprint:
                    continue
                return await asyncio.to_thread(signature_of, agent_key(pair, loop), text)
        raise ValueError(f"the SSH agent has no key {self.fingerprint}")


def agent_key(pair: Any, loop: asyncio.AbstractEventLoop) -> SSHKeyPair:
    """The key with a sign that a thread may call: asyncssh makes signatures of its format with that one alone."""
    ask = pair.sign_async
    pair.sign = lambda data: asyncio.run_coroutine_threadsafe(ask(data), loop).result()
    signer: SSHKeyPair = pair
    return signer


def asyncssh() -> Any:
    require("skerry.ssh", "asyncssh", "2.24", "3")
    import asyncssh

    return asyncssh


def fingerprint_of(public: bytes) -> str:
    return "SHA256:" + base64.b64encode(hashlib.sha256(public).digest()).decode().rstrip("=")


def signed_text(c: pb.Challenge, pack_id: str, address: str) -> bytes:
    """What a pack signs. A line feed in a server's id would move the lines behind it."""
    if c.namespace != NAMESPACE or {"\r", "\n"} & set(c.server_id):
        raise ValueError(f"the server asks for a signature of the namespace {c.namespace[:60]!r}")
    return f"skerry-pack-v1\n{c.server_id}\n{c.nonce.hex()}\n{c.expires_at}\n{pack_id}\n{address}\n".encode()


def signature_of(pair: SSHKeyPair, text: bytes) -> bytes:
    signature: bytes = asyncssh().create_sshsig(pair, text, namespace=NAMESPACE, hash_name="sha512", raw=True)
    return signature


@dataclass(frozen=True)
class TLS:
    """For https: the authorities that count (the system's without ca), and the certificate of this client with its key, all PEM files."""

    ca: str | PathLike[str] | None = None
    certificate: str | PathLike[str] | None = None
    key: str | PathLike[str] | None = None

    def channel_credentials(self) -> grpc.ChannelCredentials:
        ca = self.ca or ssl.get_default_verify_paths().cafile
        texts = [Path(f).read_bytes() if f else None for f in (ca, self.key, self.certificate)]
        return grpc.ssl_channel_credentials(*texts)
