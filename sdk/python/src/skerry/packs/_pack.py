"""A pack: tools that belong together, under one name."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, overload

from jsonschema import ValidationError
from jsonschema.validators import validator_for
from pydantic_core import to_json

from skerry.errors import ConnectionFailed
from skerry.packs import packs_pb2 as pb
from skerry.packs._call import Caller, Running, running
from skerry.packs._credentials import TLS, Credential
from skerry.packs._result import Result, ToolError, text_result
from skerry.packs._schema import Function, Input, Output
from skerry.packs._serve import DRAIN_S, Provider
from skerry.packs._threads import in_thread

log = logging.getLogger("skerry.packs")

Disclosure = Literal["always", "deferred", "hidden"]
F = TypeVar("F", bound=Function)


@dataclass(frozen=True)
class Tool:
    """A tool of a pack."""

    function: Function
    definition: pb.ToolDefinition
    input: Input
    output: Output
    is_async: bool

    async def answer(self, call: Running, raw: bytes) -> Result:
        """Runs the tool. What the function raises is the tool's failure, but for the cancellation of an async one."""
        token = running.set(call)
        try:
            if not self.is_async:
                return await in_thread(lambda: self._run(raw))
            arguments = self._arguments(raw)
            return arguments if isinstance(arguments, Result) else self._result(await self.function(**arguments))
        except (Exception, SystemExit) as err:
            return self._failed(err)
        finally:
            running.reset(token)

    def _run(self, raw: bytes) -> Result:
        try:
            arguments = self._arguments(raw)
            return arguments if isinstance(arguments, Result) else self._result(self.function(**arguments))
        except BaseException as err:  # it has ended its own thread only
            return self._failed(err)

    def _arguments(self, raw: bytes) -> dict[str, Any] | Result:
        try:
            return self.input.read(raw)
        except ValueError as err:
            return text_result(f"the arguments cannot be read: {err}", is_error=True)

    def _result(self, out: Any) -> Result:
        if isinstance(out, Result):
            return out
        if out is None or isinstance(out, str):
            return text_result(out or "")
        adapter = self.output.adapter
        raw = adapter.dump_json(adapter.validate_python(out)) if adapter else to_json(out)
        result = text_result(raw.decode())
        if raw.startswith(b"{"):
            result.structured = json.loads(raw)
        return result

    def _failed(self, err: BaseException) -> Result:
        if isinstance(err, ToolError):
            return text_result(str(err), is_error=True)
        log.error("a tool failed", exc_info=err, extra={"tool": self.definition.name})
        return text_result("the tool failed in a way that its author did not expect", is_error=True)


def is_async(function: Function) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


class Pack:
    """Tools under one name. pack_id is the name on the server: 1 to 63 of the characters a-z 0-9 -, beginning with a letter. version is
    for people, description says what the tools are for, and max_parallel is how many calls run at once."""

    def __init__(self, pack_id: str, version: str, description: str = "", *, max_parallel: int = 16) -> None:
        self.id = pack_id
        self.version = version
        self.description = description
        self.max_parallel = max_parallel
        self._tools: dict[str, Tool] = {}
        self.provider: Provider | None = None  # while the pack is served

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        title: str = "",
        requires: Sequence[str] = (),
        timeout_s: float | None = None,
        disclosure: Disclosure | None = None,
        annotations: Mapping[str, Any] | None = None,
    ) -> Callable[[F], F]: ...

    def tool(
        self,
        function: F | None = None,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        title: str = "",
        requires: Sequence[str] = (),
        timeout_s: float | None = None,
        disclosure: Disclosure | None = None,
        annotations: Mapping[str, Any] | None = None,
    ) -> F | Callable[[F], F]:
        """Makes a tool of a function, as a decorator with or without parameters.

        The function's name and docstring are those of the tool, its parameters the arguments; or it has one parameter that is a model of
        Pydantic, whose fields are the arguments. A str that it returns is text; a model, a dataclass or another object is structured
        content, with a schema from the return annotation; a Result is sent as it is.

        requires hides the tool from callers that do not have all these capabilities. timeout_s is how long a call may take, 30 s
        without it. disclosure says when the server puts the definition before a model. annotations are hints of MCP.
        """

        def add(f: F) -> F:
            tool_name = name or f.__name__
            if tool_name in self._tools:
                raise ValueError(f"tool {tool_name}: the pack has one of that name")
            try:
                given, returned = Input(f), Output(f)
            except Exception as err:
                raise TypeError(f"tool {tool_name}: its annotations have no schema: {err}") from err
            definition = pb.ToolDefinition(
                name=tool_name,
                description=given.description if description is None else description,
                input_schema_json=json.dumps(given.schema),
                output_schema_json=json.dumps(returned.schema) if returned.schema else "",
                required_capabilities=requires,
                timeout_seconds=0 if timeout_s is None else max(int(timeout_s), 1),
                disclosure=disclosure or "",
                annotations_json=json.dumps(annotations) if annotations else "",
                title=title,
            )
            self._tools = {**self._tools, tool_name: Tool(f, definition, given, returned, is_async(f))}  # others read it meanwhile
            return f

        return add if function is None else add(function)

    def remove(self, name: str) -> None:
        """Takes a tool out of the pack. A server is told by reload."""
        self._tools = {n: t for n, t in self._tools.items() if n != name}

    def copy(self) -> Pack:
        """A pack of the same tools that can be served beside this one."""
        twin = Pack(self.id, self.version, self.description, max_parallel=self.max_parallel)
        twin._tools = self._tools
        return twin

    def find(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def manifest(self) -> pb.PackManifest:
        """What the pack tells a server."""
        return pb.PackManifest(
            pack_id=self.id,
            version=self.version,
            description=self.description,
            tools=[t.definition for t in self._tools.values()],
            max_parallel_calls=self.max_parallel,
        )

    # Tests of a pack.

    async def acall(self, name: str, arguments: Mapping[str, Any] | None = None, *, caller: Caller | None = None) -> Result:
        """Runs a tool without a server, as a test does. ValueError says that the arguments do not fit the schema, LookupError that there
        is no such tool."""
        tool = self.find(name)
        if tool is None:
            raise LookupError(f"the pack {self.id} has no tool {name}")
        raw = to_json(dict(arguments or {}))
        schema = tool.input.schema
        try:
            validator_for(schema)(schema).validate(json.loads(raw))
        except ValidationError as err:
            raise ValueError(f"the arguments do not fit the schema: {err.json_path}: {err.message}") from None
        return await tool.answer(Running(caller or Caller(), lambda done, total, message: None), raw)

    def call(self, name: str, arguments: Mapping[str, Any] | None = None, *, caller: Caller | None = None) -> Result:
        """As acall, for a test that is not async."""
        return asyncio.run(self.acall(name, arguments, caller=caller))

    # Serving.

    async def serve(
        self,
        server: str,
        credential: Credential | None = None,
        *,
        tls: TLS | None = None,
        drain_s: float = DRAIN_S,
        connected: Callable[[], object] | None = None,
    ) -> None:
        """Offers the tools on a server, whose URL is server, until stop is called. It then takes no new calls, and lets those that run end,
        for at most drain_s seconds. A cancelled serve ends its calls at once.

        When the connection is lost it connects again, and waits longer after each failure. connected is called each time the server
        has taken the pack. Refused says that the server refuses the pack: its manifest, or its credential.
        """
        if self.provider is not None:
            raise RuntimeError(f"the pack {self.id} is served already")
        self.provider = Provider(self, server, credential, tls, drain_s, connected)
        try:
            await self.provider.serve()
        finally:
            self.provider = None

    def stop(self) -> None:
        """Lets serve drain and end. Any thread may call it."""
        if (provider := self.provider) is not None:
            provider.stop()

    def run(
        self,
        server: str,
        credential: Credential | None = None,
        *,
        tls: TLS | None = None,
        drain_s: float = DRAIN_S,
        connected: Callable[[], object] | None = None,
    ) -> None:
        """As serve, for a program that does nothing else: SIGTERM and SIGINT drain the pack, a second one ends it at once."""

        async def main() -> None:
            loop = asyncio.get_running_loop()
            serving = asyncio.ensure_future(self.serve(server, credential, tls=tls, drain_s=drain_s, connected=connected))

            def signalled() -> None:
                if self.provider is None or self.provider.stopping:
                    serving.cancel()
                else:
                    self.provider.stop()

            for number in (signal.SIGTERM, signal.SIGINT):
                try:
                    loop.add_signal_handler(number, signalled)
                except (NotImplementedError, RuntimeError, ValueError):
                    pass  # Windows, or not the main thread: the program calls stop
            await serving

        asyncio.run(main())

    async def areload(self) -> None:
        """Tells the server which tools the pack has now. Calls under way go on. Refused says that the server refuses them, and the former
        tools stay offered. ConnectionFailed says that there is no connection: the next one has them."""
        if self.provider is None:
            raise ConnectionFailed(f"the pack {self.id} is not connected")
        await asyncio.wrap_future(self.provider.reload())

    def reload(self) -> None:
        """As areload, for a tool that is not async, and for other threads."""
        if self.provider is None:
            raise ConnectionFailed(f"the pack {self.id} is not connected")
        if self.provider.is_here():
            raise RuntimeError("reload blocks the event loop that the answer has to come by: await areload() here")
        self.provider.reload().result()
