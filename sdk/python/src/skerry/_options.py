"""What calls that run something may be told. What is absent, or None, is left to the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from typing_extensions import TypedDict

from skerry._constants import DEFAULT_WAIT_S

Language = Literal["typescript", "javascript", "python", "bash", "wasm", "ts", "js", "py", "sh"]
ContextLanguage = Literal["python", "typescript", "javascript", "py", "ts", "js"]


class CommandOptions(TypedDict, total=False):
    """Of a command. timeout_s is its own limit, 60 s by default; max_output_bytes is for stdout and stderr each.

    leave_processes keeps what outlives the command, such as a server behind nohup: Thread.processes lists it.
    """

    cwd: str | None
    env: Mapping[str, str] | None
    env_secrets: Mapping[str, str] | None
    redact_env: bool | None
    stdin: str | None
    timeout_s: float | None
    max_output_bytes: int | None
    report_files: bool | None
    leave_processes: bool | None


class CodeOptions(TypedDict, total=False):
    """Of code. timeout_s is its own limit, 30 s by default and at most 120; max_output_chars is for stdout.

    description says in a sentence what the code does: it is shown in the list of execs and in the audit log.
    """

    language: Language | None
    description: str | None
    timeout_s: float | None
    max_output_chars: int | None
    env: Mapping[str, str] | None
    env_secrets: Mapping[str, str] | None
    redact_env: bool | None


class ThreadOptions(TypedDict, total=False):
    """Which threads. state and template are the sandbox's; text is in the id, the user or a value of the labels.

    sort is thread_id, or last_active_at for the latest activity first, which is the order of all users' threads. disk_bytes is for the
    largest files first, without threads that were never measured. min_disk_mib is the least size when they were last measured.
    """

    user: str | None
    state: str | None
    template: str | None
    text: str | None
    active_after: datetime | None
    active_before: datetime | None
    min_disk_mib: int | None
    sort: Literal["thread_id", "last_active_at", "disk_bytes"] | None


def thread_params(options: ThreadOptions) -> dict[str, Any]:
    params = given(**options)
    if "text" in params:
        params["q"] = params.pop("text")
    for name in ("active_after", "active_before"):
        if name in params:
            params[name] = params[name].astimezone().isoformat()
    return params


def given(**fields: Any) -> dict[str, Any]:
    """The fields that are not None."""
    return {k: v for k, v in fields.items() if v is not None}


def command_body(command: str | Sequence[str], options: CommandOptions) -> dict[str, Any]:
    return given(**options) | ({"command": command} if isinstance(command, str) else {"argv": list(command)})


def code_body(code: str, options: CodeOptions) -> dict[str, Any]:
    body = given(code=code, **options)
    if "timeout_s" in body:
        body["timeout"] = body.pop("timeout_s")
    return body


def deadline_of(deadline_s: float | None, timeout_s: float | None, default_s: float) -> float:
    """A run may first wait for a place, the start of its sandbox, and an approval."""
    return deadline_s or (timeout_s or default_s) + DEFAULT_WAIT_S
