# Made from the async client by scripts/generate.py.
"""The client."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote

import httpx
from typing_extensions import Unpack

from skerry import _constants as constants
from skerry import errors, models
from skerry._options import ThreadOptions, given, thread_params
from skerry._sync.thread import Thread
from skerry._sync.transport import Transport


class Client:
    """A connection to a Skerry server.

    server and api_key come from SKERRY_SERVER and SKERRY_API_KEY when they are not given. timeout_s is for calls that run
    nothing; those that do add the time of what they run. retries is how often a call is tried again, by rules that never do
    twice what must be done once. http is a client of yours, for proxies and certificates; it stays yours to close.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        api_key: str | None = None,
        on_behalf_of: str | None = None,
        timeout_s: float = constants.DEFAULT_TIMEOUT_S,
        retries: int = constants.DEFAULT_RETRIES,
        http: httpx.Client | None = None,
    ) -> None:
        server = server or os.environ.get("SKERRY_SERVER") or "http://127.0.0.1:8080"
        if "://" not in server:
            server = "http://" + server
        api_key = api_key or os.environ.get("SKERRY_API_KEY")
        headers = {"User-Agent": "skerry-python/" + constants.VERSION}
        if api_key:
            headers["Authorization"] = "Bearer " + api_key
        if on_behalf_of:
            headers[constants.HEADER_ON_BEHALF_OF] = on_behalf_of
        self._transport = Transport(server, headers, timeout_s, retries, http)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections. Nothing on the server ends by it."""
        self._transport.close()

    def thread(self, thread_id: str) -> Thread:
        """A thread by its name. No call is made."""
        return Thread(self._transport, thread_id)

    def threads(self, *, labels: Mapping[str, str] | None = None, **options: Unpack[ThreadOptions]) -> Iterator[models.Thread]:
        """The caller's threads; for administrators those of another user, or with user="*" of the tenant."""
        params = {"label": [f"{k}={v}" for k, v in (labels or {}).items()] or None} | thread_params(options)
        for item in self._pages("/api/threads", params):
            yield models.Thread.model_validate(item)

    def templates(self) -> Sequence[models.Template]:
        return models.PageTemplate.model_validate((self._transport.call("GET", "/api/templates")).json()).items

    def skills(self) -> Sequence[models.Skill]:
        return models.SkillsAnswer.model_validate((self._transport.call("GET", "/api/skills")).json()).skills

    def skill(self, name: str) -> models.Skill:
        return models.Skill.model_validate((self._transport.call("GET", self._skill(name))).json())

    def switch_skill(self, name: str, enabled: bool) -> models.Skill:
        """Switches a skill on or off."""
        return models.Skill.model_validate((self._transport.call("PUT", self._skill(name), body={"enabled": enabled})).json())

    def _skill(self, name: str) -> str:
        return f"/api/skills/{quote(name, safe='')}"

    def approvals(self, *, state: str | None = None) -> Iterator[models.Approval]:
        """Calls that wait, or waited, for a person, newest first."""
        for item in self._pages("/api/approvals", {"state": state}):
            yield models.Approval.model_validate(item)

    def decide(
        self,
        approval: str,
        decision: Literal["approve", "deny"],
        *,
        scope: Literal["once", "arguments", "thread"] | None = None,
        reason: str | None = None,
    ) -> models.Approval:
        """Lets a call through, or denies it."""
        path = f"/api/approvals/{quote(approval, safe='')}"
        body = given(decision=decision, scope=scope, reason=reason)
        return models.Approval.model_validate((self._transport.call("POST", path, body=body)).json())

    def verify_audit(self) -> models.AuditVerification:
        """Whether the audit log is whole."""
        return models.AuditVerification.model_validate((self._transport.call("POST", "/api/audit/verify", body={})).json())

    def follow_audit(
        self, *, after: str | None = None, thread: str | None = None, deadline_s: float = constants.TRANSFER_S
    ) -> Iterator[tuple[str, models.AuditRecord]]:
        """Audit records as they come, over one connection, each with an id: after goes on behind it, else it begins now."""
        headers = {constants.HEADER_LAST_EVENT_ID: after} if after else None
        try:
            for message in self._transport.events(
                "GET", "/api/audit/stream", params={"thread": thread}, headers=headers, deadline_s=deadline_s
            ):
                if message.event == constants.EVENT_ERROR:
                    raise errors.from_answer(int(json.loads(message.data).get("status", 500)), {}, message.data.encode())
                if message.event == constants.EVENT_RECORD:
                    yield message.id, models.AuditRecord.model_validate_json(message.data)
        except httpx.HTTPError as err:
            raise errors.ConnectionFailed(f"the audit log was cut off ({type(err).__name__}: {err})") from err

    def audit(
        self,
        *,
        thread: str | None = None,
        user: str | None = None,
        exec: str | None = None,
        action: str | None = None,
        tool: str | None = None,
        outcome: str | None = None,
        since: str | None = None,
        until: str | None = None,
        query: str | None = None,
    ) -> Iterator[models.AuditRecord]:
        """Audit records, newest first, page by page as they are taken. since and until are RFC 3339."""
        params = {
            "thread": thread,
            "user": user,
            "exec": exec,
            "action": action,
            "tool": tool,
            "outcome": outcome,
            "since": since,
            "until": until,
            "q": query,
        }
        for item in self._pages("/api/audit", params):
            yield models.AuditRecord.model_validate(item)

    def audit_summary(
        self,
        *,
        thread: str | None = None,
        user: str | None = None,
        exec: str | None = None,
        action: str | None = None,
        tool: str | None = None,
        outcome: str | None = None,
        since: str | None = None,
        until: str | None = None,
        query: str | None = None,
        buckets: int | None = None,
    ) -> models.AuditSummary:
        """How many audit records fit a filter: in all, by time, and by the values of some fields."""
        params = {
            "thread": thread,
            "user": user,
            "exec": exec,
            "action": action,
            "tool": tool,
            "outcome": outcome,
            "since": since,
            "until": until,
            "q": query,
            "buckets": buckets,
        }
        return models.AuditSummary.model_validate((self._transport.call("GET", "/api/audit/summary", params=params)).json())

    def health(self) -> models.Health:
        return models.Health.model_validate((self._transport.call("GET", "/healthz")).json())

    def call(self, method: str, path: str, *, params: Mapping[str, str] | None = None, body: Any = None) -> Any:
        """Any route of the API, by the same rules, for those that have no method here: the JSON that it answers."""
        return (self._transport.call(method, path, params=params, body=body)).json()

    def _pages(self, path: str, params: Mapping[str, Any]) -> Iterator[Any]:
        cursor: str | None = None
        while True:
            page = (self._transport.call("GET", path, params={**params, "cursor": cursor})).json()
            for item in page["items"]:
                yield item
            cursor = page.get("next_cursor")
            if not cursor:
                return
