from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CallContext(_message.Message):
    __slots__ = ["tenant", "thread", "user"]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    THREAD_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    thread: str
    user: str
    def __init__(self, tenant: _Optional[str] = ..., user: _Optional[str] = ..., thread: _Optional[str] = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ["reason", "request_id"]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    reason: str
    request_id: int
    def __init__(self, request_id: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Challenge(_message.Message):
    __slots__ = ["expires_at", "namespace", "nonce", "server_id"]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    expires_at: int
    namespace: str
    nonce: bytes
    server_id: str
    def __init__(self, server_id: _Optional[str] = ..., nonce: _Optional[bytes] = ..., expires_at: _Optional[int] = ..., namespace: _Optional[str] = ...) -> None: ...

class Drain(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class ExecuteTool(_message.Message):
    __slots__ = ["request"]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: ExecuteToolRequest
    def __init__(self, request: _Optional[_Union[ExecuteToolRequest, _Mapping]] = ...) -> None: ...

class ExecuteToolRequest(_message.Message):
    __slots__ = ["context", "input_json", "request_id", "timeout_ms", "tool_name"]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    INPUT_JSON_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    TOOL_NAME_FIELD_NUMBER: _ClassVar[int]
    context: CallContext
    input_json: bytes
    request_id: int
    timeout_ms: int
    tool_name: str
    def __init__(self, request_id: _Optional[int] = ..., tool_name: _Optional[str] = ..., input_json: _Optional[bytes] = ..., timeout_ms: _Optional[int] = ..., context: _Optional[_Union[CallContext, _Mapping]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class Open(_message.Message):
    __slots__ = ["address", "instance", "pack_id"]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    PACK_ID_FIELD_NUMBER: _ClassVar[int]
    address: str
    instance: str
    pack_id: str
    def __init__(self, pack_id: _Optional[str] = ..., instance: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class PackManifest(_message.Message):
    __slots__ = ["description", "max_parallel_calls", "pack_id", "tools", "version"]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    MAX_PARALLEL_CALLS_FIELD_NUMBER: _ClassVar[int]
    PACK_ID_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    description: str
    max_parallel_calls: int
    pack_id: str
    tools: _containers.RepeatedCompositeFieldContainer[ToolDefinition]
    version: str
    def __init__(self, pack_id: _Optional[str] = ..., version: _Optional[str] = ..., description: _Optional[str] = ..., tools: _Optional[_Iterable[_Union[ToolDefinition, _Mapping]]] = ..., max_parallel_calls: _Optional[int] = ...) -> None: ...

class PackMessage(_message.Message):
    __slots__ = ["drain", "heartbeat", "open", "progress", "register", "reload", "result"]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    REGISTER_FIELD_NUMBER: _ClassVar[int]
    RELOAD_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    drain: Drain
    heartbeat: Heartbeat
    open: Open
    progress: Progress
    register: Register
    reload: Reload
    result: ToolResult
    def __init__(self, open: _Optional[_Union[Open, _Mapping]] = ..., register: _Optional[_Union[Register, _Mapping]] = ..., result: _Optional[_Union[ToolResult, _Mapping]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., reload: _Optional[_Union[Reload, _Mapping]] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ["message", "progress", "request_id", "total"]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    message: str
    progress: float
    request_id: int
    total: float
    def __init__(self, request_id: _Optional[int] = ..., progress: _Optional[float] = ..., total: _Optional[float] = ..., message: _Optional[str] = ...) -> None: ...

class Register(_message.Message):
    __slots__ = ["manifest", "signature"]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    manifest: PackManifest
    signature: bytes
    def __init__(self, manifest: _Optional[_Union[PackManifest, _Mapping]] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Reload(_message.Message):
    __slots__ = ["manifest"]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    manifest: PackManifest
    def __init__(self, manifest: _Optional[_Union[PackManifest, _Mapping]] = ...) -> None: ...

class ReloadResult(_message.Message):
    __slots__ = ["error"]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: str
    def __init__(self, error: _Optional[str] = ...) -> None: ...

class ServerMessage(_message.Message):
    __slots__ = ["cancel", "challenge", "drain", "execute", "heartbeat", "reload_result", "welcome", "window"]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    EXECUTE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    RELOAD_RESULT_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    cancel: Cancel
    challenge: Challenge
    drain: Drain
    execute: ExecuteTool
    heartbeat: Heartbeat
    reload_result: ReloadResult
    welcome: Welcome
    window: Window
    def __init__(self, challenge: _Optional[_Union[Challenge, _Mapping]] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., execute: _Optional[_Union[ExecuteTool, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ..., window: _Optional[_Union[Window, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., reload_result: _Optional[_Union[ReloadResult, _Mapping]] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ...) -> None: ...

class ToolDefinition(_message.Message):
    __slots__ = ["annotations_json", "description", "disclosure", "input_schema_json", "name", "output_schema_json", "required_capabilities", "timeout_seconds", "title"]
    ANNOTATIONS_JSON_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    DISCLOSURE_FIELD_NUMBER: _ClassVar[int]
    INPUT_SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    annotations_json: str
    description: str
    disclosure: str
    input_schema_json: str
    name: str
    output_schema_json: str
    required_capabilities: _containers.RepeatedScalarFieldContainer[str]
    timeout_seconds: int
    title: str
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., input_schema_json: _Optional[str] = ..., output_schema_json: _Optional[str] = ..., required_capabilities: _Optional[_Iterable[str]] = ..., timeout_seconds: _Optional[int] = ..., disclosure: _Optional[str] = ..., annotations_json: _Optional[str] = ..., title: _Optional[str] = ...) -> None: ...

class ToolError(_message.Message):
    __slots__ = ["code", "message"]
    class Code(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    CODE_BUSY: ToolError.Code
    CODE_DRAINING: ToolError.Code
    CODE_FIELD_NUMBER: _ClassVar[int]
    CODE_UNKNOWN_TOOL: ToolError.Code
    CODE_UNSPECIFIED: ToolError.Code
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: ToolError.Code
    message: str
    def __init__(self, code: _Optional[_Union[ToolError.Code, str]] = ..., message: _Optional[str] = ...) -> None: ...

class ToolResult(_message.Message):
    __slots__ = ["error", "last", "part", "request_id"]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    error: ToolError
    last: bool
    part: bytes
    request_id: int
    def __init__(self, request_id: _Optional[int] = ..., part: _Optional[bytes] = ..., last: bool = ..., error: _Optional[_Union[ToolError, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ["call_window", "connection_window", "heartbeat_seconds", "max_part_bytes", "max_result_bytes", "server_version", "session_id"]
    CALL_WINDOW_FIELD_NUMBER: _ClassVar[int]
    CONNECTION_WINDOW_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    MAX_PART_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_RESULT_BYTES_FIELD_NUMBER: _ClassVar[int]
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    call_window: int
    connection_window: int
    heartbeat_seconds: int
    max_part_bytes: int
    max_result_bytes: int
    server_version: str
    session_id: str
    def __init__(self, session_id: _Optional[str] = ..., server_version: _Optional[str] = ..., heartbeat_seconds: _Optional[int] = ..., call_window: _Optional[int] = ..., connection_window: _Optional[int] = ..., max_part_bytes: _Optional[int] = ..., max_result_bytes: _Optional[int] = ...) -> None: ...

class Window(_message.Message):
    __slots__ = ["bytes", "request_id"]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    request_id: int
    def __init__(self, request_id: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...
