# Made from a server's /openapi.json by scripts/generate.py.

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AwareDatetime, Field

from skerry._base import Model


class ApprovalDecision(Model):
    at: AwareDatetime
    by: str
    how: str
    key_id: str | None = None
    reason: str | None = None
    scope: str | None = None


class ApprovalSummary(Model):
    exec_id: str | None = None
    expires_at: AwareDatetime
    id: str
    server: str | None = None
    state: str
    tool: str
    why: str


class ApprovedTools(Model):
    approved: list[str]


class AuditBadRecord(Model):
    detail: str | None = None
    id: str | None = None
    line: int | None = None
    reason: str
    segment: str | None = None
    seq: int
    through: int | None = None
    writer: str


class AuditBucket(Model):
    count: int
    """
    Records
    """
    denied: int
    """
    Of them, those whose outcome is denied
    """
    failed: int
    """
    Of them, those whose outcome is another failure: error, timeout, oom, killed, lost, expired, refused
    """
    start: AwareDatetime


class AuditFacetValue(Model):
    count: int
    """
    Records
    """
    denied: int
    """
    Of them, those whose outcome is denied
    """
    failed: int
    """
    Of them, those whose outcome is another failure: error, timeout, oom, killed, lost, expired, refused
    """
    value: str


class AuditHead(Model):
    hash: str
    seq: int
    signature: Annotated[str | None, Field(json_schema_extra={"contentEncoding": "base64"})] = None
    signer: str | None = None
    time: AwareDatetime
    writer: str


class AuditRecord(Model):
    action: str
    actor: str | None = None
    args: Any | None = None
    args_hash: str | None = None
    auth: str | None = None
    bytes_in: int
    bytes_out: int
    detail: str | None = None
    exec: str | None = None
    hash: str
    id: str
    key_id: str | None = None
    ms: int
    out_hash: str | None = None
    outcome: str | None = None
    parent: str | None = None
    phase: str
    prev: str
    request_id: str | None = None
    role: str | None = None
    sandbox: str | None = None
    seq: int
    source: str | None = None
    subject: str | None = None
    tenant: str
    thread: str | None = None
    time: AwareDatetime
    trace_id: str | None = None
    user: str
    user_agent: str | None = None
    why: Any | None = None
    writer: str


class AuditWriter(Model):
    from_: Annotated[int | None, Field(alias="from")] = None
    hash: str
    overdue: bool | None = None
    seq: int
    signature: Annotated[str | None, Field(json_schema_extra={"contentEncoding": "base64"})] = None
    signed_at: str | None = None
    signed_seq: int
    signed_with: str | None = None
    signer: str | None = None
    time: AwareDatetime
    unchecked: int | None = None
    writer: str


class Bounds(Model):
    bytes: int | None = None
    rates: list[str] | None = None
    """
    rule: calls in time
    """
    time: str | None = None


class ChangedFiles(Model):
    exec_id: str | None = None
    """
    The exec that changed them; absent for a call of the API
    """
    more: bool | None = None
    """
    Other files may have changed, too: list the folders
    """
    paths: list[str]
    """
    At most 50. A folder stands for what is in it
    """


class ChangedSandbox(Model):
    sandbox_id: str
    template: str
    why: str | None = None
    """
    Such as asked, idle, age, room, or how it ended by itself
    """


class CodeContext(Model):
    context_id: str
    created_at: AwareDatetime
    cwd: str
    detail: str | None = None
    exec_id: str | None = None
    language: str
    last_used_at: AwareDatetime
    runs: int
    state: str


class CommandArgs(Model):
    args: str | None = None


class ContextOutcome(Model):
    context_id: str
    detail: str | None = None
    state: str


class DenoPermissions(Model):
    allow_env: list[str]
    allow_net: list[str]
    allow_read: list[str]
    allow_run: list[str]
    allow_write: list[str]


class DiskRoom(Model):
    free_bytes: int
    """
    For the server; what is reserved for root is not free
    """
    total_bytes: int


class DiskUsage(Model):
    bytes: int
    files: int


class Edited(Model):
    occurrences: int
    path: str


class Effects(Model):
    allow: int
    deny: int
    require_approval: int


class ExecInfo(Model):
    action: str
    background: bool
    description: str | None = None
    duration_ms: int | None = None
    """
    Of an ended exec
    """
    exec_id: str
    exit_code: int | None
    started_at: AwareDatetime
    status: str
    subject: str
    terminal: bool | None = None
    """
    It has a terminal, which a client can join
    """


class ExecUsage(Model):
    cpu_ms: int
    max_rss_bytes: int


class FieldError(Model):
    detail: str
    field: str


class FileChange(Model):
    bytes: int
    change: str
    mime: str | None = None
    path: str
    sha256: str | None = None


class FileEntry(Model):
    bytes: int
    is_dir: bool
    mode: str
    modified_at: AwareDatetime
    path: str
    symlink: str | None = None


class FileListing(Model):
    items: list[FileEntry]
    truncated: bool


class FileText(Model):
    bytes: int
    content: str
    encoding: str
    end_line: int
    modified_at: AwareDatetime
    next_offset: int | None = None
    path: str
    start_line: int
    total_lines: int
    truncated: bool | None = None


class Finding(Model):
    file: str | None = None
    line: int | None = None
    message: str
    rule: str
    severity: str


class GrepMatch(Model):
    after: list[str] | None = None
    before: list[str] | None = None
    line: int
    path: str
    text: str


class GrepMatches(Model):
    items: list[GrepMatch]
    truncated: bool


class Health(Model):
    status: str
    version: str


class Hides(Model):
    args: list[str] | None = None
    result: list[str] | None = None


class Interpreter(Model):
    preload: list[str] | None = None
    warm: int


class Key(Model):
    act_for: bool
    admin: bool
    capabilities: list[str] | None = None
    created_at: AwareDatetime
    expires_at: AwareDatetime | None = None
    id: str
    last_used_at: AwareDatetime | None = None
    name: str
    role: str
    tenant: str
    threads: list[str] | None = None
    user: str


class Limit(Model):
    free_at: AwareDatetime | None = None
    limit: str
    """
    As in the configuration: execs, requests_per_minute …
    """
    max: int
    retry_after_s: int | None = None
    """
    As Retry-After; absent when it is unknown or waiting does not help
    """
    scope: str
    """
    Whose limit it is
    """
    used: int
    who: str


class LimitState(Model):
    limit: str
    max: int
    scope: str
    used: int | None = None
    """
    Now; absent for a rate
    """
    who: str


class Limits(Model):
    cpu_millis: int
    disk_bytes: int
    file_bytes: int
    memory_bytes: int
    open_files: int
    pids: int
    tmp_bytes: int


class LoginProvider(Model):
    authorization_endpoint: str | None = None
    """
    Absent while the provider does not answer the server
    """
    client_id: str
    """
    Of a public client: there is no secret
    """
    issuer: str
    name: str
    scopes: list[str]


class LoginProviders(Model):
    issuers: list[LoginProvider]


class LoginToken(Model):
    expires_in_s: int
    refresh_token: str | None = None
    token: str
    """
    Send it as Authorization: Bearer
    """


class MadeKey(Model):
    act_for: bool
    admin: bool
    capabilities: list[str] | None = None
    created_at: AwareDatetime
    expires_at: AwareDatetime | None = None
    id: str
    last_used_at: AwareDatetime | None = None
    name: str
    role: str
    secret: str
    tenant: str
    threads: list[str] | None = None
    user: str


class MarketplaceEntry(Model):
    category: str | None = None
    description: str
    display_name: str | None = None
    installed: bool
    name: str
    pinned: bool
    problem: str | None = None
    source: str
    version: str | None = None


class McpInstalled(Model):
    tools: int
    """
    How many tools the server has
    """


class McpServer(Model):
    config: Any
    """
    As in extensions_config.json; secrets are ***
    """
    error: str | None = None
    """
    Why it failed, or waits for a login
    """
    name: str
    state: str | None = None
    """
    Of the caller's own connection; absent when the server is not enabled
    """


class NamedSeries(Model):
    kind: str
    """
    level: the most in a step; count: what was counted in it
    """
    name: str
    """
    Of a level such as sandboxes_running, queue or pool, or of what is counted, such as execs, tool_errors or refused
    """
    values: list[int]
    """
    One for each of times
    """


class PackKey(Model):
    capabilities: list[str] | None = None
    """
    The only capabilities that its tools may require; any when absent
    """
    cert_authority: bool | None = None
    """
    Certificates that it signed count, and not the key itself
    """
    created_at: AwareDatetime | None = None
    """
    Absent for a key of the file
    """
    created_by: str | None = None
    expires_at: AwareDatetime | None = None
    file: bool | None = None
    """
    It is in the file authorized_packs, and changed there
    """
    id: str
    """
    The key's fingerprint
    """
    key: str
    """
    As in authorized_keys: type and base64
    """
    name: str | None = None
    packs: list[str] | None = None
    """
    The only packs: names, or the beginning of names with a * behind it; all when absent
    """
    tenant: str | None = None
    """
    Whose users get the packs; all when absent
    """


class PackTool(Model):
    description: str
    disclosure: str | None = None
    name: str
    required_capabilities: list[str] | None = None
    timeout_s: int


class PageCodeContext(Model):
    items: list[CodeContext]
    next_cursor: str | None = None
    """
    Send it as cursor to get the rest; not there at the end
    """


class PageExecInfo(Model):
    items: list[ExecInfo]
    next_cursor: str | None = None
    """
    Send it as cursor to get the rest; not there at the end
    """


class PageHead(Model):
    items: list[AuditHead]
    next_cursor: str | None = None
    """
    Send it as cursor to get the rest; not there at the end
    """


class PageKey(Model):
    items: list[Key]
    next_cursor: str | None = None
    """
    Send it as cursor to get the rest; not there at the end
    """


class PageMcpServer(Model):
    items: list[McpServer]
    next_cursor: str | None = None
    """
    Send it as cursor to get the rest; not there at the end
    """


class PagePackKey(Model):
    items: list[PackKey]
    next_cursor: str | None = None
    """
    Send it as cursor to get the rest; not there at the end
    """


class PluginChange(Model):
    enabled: bool


class PluginCommand(Model):
    allowed_tools: list[str] | None = None
    argument_hint: str
    description: str
    hidden: bool | None = None
    kind: str
    model: str | None = None
    name: str


class PluginMessage(Model):
    findings: list[Finding]
    message: str


class PluginOption(Model):
    default: Any | None = None
    description: str | None = None
    key: str
    required: bool | None = None
    sensitive: bool | None = None
    set: bool
    title: str | None = None
    type: str
    value: Any | None = None
    variable: bool | None = None


class PluginServer(Model):
    name: str
    reason: str | None = None
    registered: str
    state: str
    transport: str


class PluginSkill(Model):
    broken: bool | None = None
    description: str
    location: str
    name: str


class PluginSource(Model):
    commit: str | None = None
    from_: Annotated[str | None, Field(alias="from")] = None
    kind: str
    marketplace: str | None = None
    path: str | None = None
    ref: str | None = None
    sha256: str | None = None


class PluginValues(Model):
    values: Annotated[dict[str, Any], Field(max_length=200, min_length=1)]
    """
    By the keys of the plugin's options: null removes one, *** keeps a sensitive one. ${secret:NAME} lends a secret of the caller
    """


class PolicyRules(Model):
    digest: str
    """
    Of the text; part of each decision
    """
    loaded_at: AwareDatetime | None = None
    problem: str | None = None
    """
    Why what stands in the file does not count: the rules from before do
    """
    scope: str
    source: str
    text: str
    """
    The rules that count, as YAML; see docs/policy.md
    """


class Pool(Model):
    burst: int
    max_age_s: int
    min: int
    target: int


class PoolLevels(Model):
    starting: int
    target: int
    """
    Of all servers together
    """
    template: str
    waiting: int
    """
    Sandboxes of this server that wait for a thread
    """


class Principal(Model):
    actor: str
    """
    The user of the credential itself
    """
    capabilities: list[str]
    """
    Names that tools may require
    """
    may_act_for: bool
    """
    The credential may name other users of the tenant in On-Behalf-Of, with the role developer at most
    """
    method: str
    """
    What shows who the caller is: a key or an identity provider's token; none: the server wants no credential
    """
    operator: bool
    """
    Administers what all tenants share
    """
    role: str
    tenant: str
    threads: list[str] | None = None
    """
    The only threads that the credential is good for: names, or prefix*; all when absent
    """
    user: str
    """
    Whom requests are for: with On-Behalf-Of another user than actor
    """


class Problem(Model):
    code: str
    """
    Stable over time, unlike the texts
    """
    detail: str
    errors: list[FieldError] | None = None
    """
    What is wrong with which field of the request
    """
    limit: Limit | None = None
    """
    With quota_exceeded: the limit of a tenant, user or key that was met
    """
    not_started: bool | None = None
    """
    Nothing of the request was done: it may be sent again as it is. When absent from a 5xx, it may have been done
    """
    status: int
    title: str
    type: str
    """
    urn:skerry:error:<code>
    """


class Process(Model):
    command: str
    """
    As the process tells it, secrets hidden
    """
    cpu_ms: int | None = None
    """
    Time that it computed
    """
    exec_id: str
    parent_pid: int | None = None
    pid: int
    rss_bytes: int
    running: bool
    """
    Its exec runs; false: it outlived its exec
    """
    started_at: AwareDatetime | None = None
    threads: int | None = None


class PtySize(Model):
    cols: int
    rows: int


class Reason(Model):
    effect: str | None = None
    error: str | None = None
    held: list[str] | None = None
    rule: str
    text: str | None = None


class ResultFile(Model):
    bytes: int
    format: str
    path: str


class Runnable(Model):
    missing: list[str]
    template: str
    unsure: list[str] | None = None


class Sample(Model):
    allowed_tools: list[str] | None = None
    """
    What the skill names in allowed-tools
    """
    annotations: Any | None = None
    """
    What the tool says of itself: an object with readOnlyHint and the like
    """
    args: Any | None = None
    """
    Arguments: an object
    """
    capabilities: list[str] | None = None
    """
    Those that the caller has
    """
    exec: str | None = None
    """
    Id of an exec whose code calls
    """
    kind: str | None = None
    """
    tool_call when absent
    """
    role: str | None = None
    """
    agent when absent
    """
    server: str | None = None
    """
    Name of an MCP server
    """
    skill: str | None = None
    """
    The skill whose script runs, or calls the tool
    """
    tenant: str | None = None
    """
    default when absent
    """
    thread: str | None = None
    time: AwareDatetime | None = None
    """
    Now when absent
    """
    tool: str | None = None
    """
    Name of the tool as its server has it
    """
    untrusted: bool | None = None
    """
    The skill comes from a source that is not trusted
    """
    user: str | None = None
    """
    somebody when absent
    """


class SandboxDisk(Model):
    bytes: int
    files: int
    limit_bytes: int
    """
    0: no limit
    """


class SandboxMetrics(Model):
    at: AwareDatetime
    cpu_limit_millis: int
    """
    Thousandths of a core that it may use
    """
    cpu_ms: int
    """
    Time that its processes computed since it was made, of all cores together; what it uses now is the growth between two answers
    """
    disk: SandboxDisk | None = None
    """
    The thread's files, as they were measured some seconds ago; absent when they cannot be counted
    """
    memory_bytes: int
    """
    With the cache of its files
    """
    memory_limit_bytes: int
    pids: int
    """
    Processes and threads; with a kernel of its own (gVisor) those that this kernel has on the host
    """
    pids_limit: int


class Secret(Model):
    changed_at: AwareDatetime | None = None
    changed_by: str | None = None
    exec: bool
    """
    It may be in the environment of an exec (env_secrets)
    """
    last_used_at: AwareDatetime | None = None
    """
    To half a minute; absent when never, and for files and variables
    """
    name: str
    scope: str
    """
    tenant, user/NAME, server/NAME or skill/NAME
    """
    source: str


class SecretRotation(Model):
    renewed: int
    """
    Values that were encrypted anew
    """


class ServerFinding(Model):
    check: str
    """
    What was looked at: kernel, cgroups, clock, data folder, disk quota, state, driver, audit log, capacity, server
    """
    detail: str
    fix: str | None = None
    """
    What to do; absent when there is nothing to do
    """
    name: str | None = None
    """
    Which of several
    """
    state: str
    """
    warning: the server serves, but something does not work as it should; problem: mend it first
    """


class ServerFindings(Model):
    at: AwareDatetime
    """
    When the server looked; it does again when somebody asks after half a minute
    """
    items: list[ServerFinding]


class ServerLevels(Model):
    audit_failing: bool
    """
    The audit log cannot be written, or its disk is full
    """
    audit_lag: int
    """
    Audit records that are on the disk and not yet in Redis
    """
    audit_unsigned: int
    """
    Audit records behind the last signature
    """
    execs: int
    """
    That run
    """
    max_sandboxes: int
    """
    0: no bound
    """
    pools: list[PoolLevels]
    queue: int
    """
    Requests that wait for a place
    """
    sandboxes: dict[str, int]
    """
    By state
    """


class ServerOverview(Model):
    disk: DiskRoom | None = None
    now: ServerLevels
    replica: str
    """
    The server that answers; each keeps its own
    """
    series: list[NamedSeries]
    started_at: AwareDatetime
    """
    Since when it counts: a restart begins anew
    """
    step_s: int
    """
    Length of a step, in seconds
    """
    times: list[int]
    """
    Ends of the steps, in Unix seconds, the oldest first
    """
    version: str


class ServerReport(Model):
    draining: bool
    execs: int
    """
    That run
    """
    max_sandboxes: int
    """
    0: no bound
    """
    pools: list[PoolLevels]
    queue: int
    """
    Requests that wait for a place
    """
    sandboxes: dict[str, int]
    """
    Of threads, by state
    """
    threads: int
    """
    That it has: those with a sandbox, and those of requests under way
    """
    version: str


class ServerStatus(Model):
    address: str | None = None
    """
    Where its API listens
    """
    id: str
    """
    Of its process: it has another one after a restart
    """
    peer_address: str | None = None
    """
    Where servers of other machines reach it
    """
    report: ServerReport | None = None
    """
    What it says of itself; absent when it is silent, or of a version that says nothing
    """
    seen_at: AwareDatetime | None = None
    """
    When it answered; absent when it is silent
    """
    slot: int
    """
    Its place in the data folder, from 1
    """
    started_at: AwareDatetime
    state: str
    """
    draining: it is stopping, and takes no new work; silent: its process is there, and does not answer
    """
    this: bool
    """
    It is the one that answers
    """


class Skill(Model):
    allowed_tools: list[str]
    """
    allowed-tools of SKILL.md, one entry a tool: a pre-approval. Rules of the policy can make a limit of it
    """
    category: str
    """
    public, custom, virtual, or plugin:<name>
    """
    compatibility: str
    """
    What it needs, for people; as SKILL.md says
    """
    description: str
    digest: str
    """
    Of all files; empty when they cannot be read
    """
    enabled: bool
    findings: list[Finding]
    license: str
    location: str
    """
    Of SKILL.md, in a sandbox where the skill is on
    """
    metadata: dict[str, Any]
    """
    metadata of SKILL.md
    """
    name: str
    runnable: Runnable
    template: str
    """
    Of the sandbox where its scripts run; empty: that of the thread
    """
    text: str | None = None
    """
    SKILL.md, to one who asked with text=true. Absent when it cannot be read, is no UTF-8, or has more than 1 MiB
    """
    trusted: bool
    """
    Its scripts may run without an approval
    """


class SkillChannel(Model):
    active: bool | None = None
    digest: str
    hash: str
    id: str
    server: str


class SkillFile(Model):
    bytes: int
    location: str
    """
    In the sandbox
    """
    mime: str
    path: str
    """
    Relative to the skill's folder
    """
    text: str | None = None
    """
    Not there when the file is binary, or longer than 1 MiB: use it in the sandbox
    """


class SkillFound(Model):
    description: str
    location: str
    name: str


class SkillInstalled(Model):
    digest: str
    """
    sha256: and 64 hex digits, of all files
    """
    findings: list[Finding]
    """
    Findings about SKILL.md and of the static scan; errors are refused with strict only
    """
    message: str
    skill_name: str
    success: bool


class SkillKey(Model):
    key: str
    """
    The bearer key of the stream. It is good for nothing else, and shown here only; it ends with the skill
    """
    pack_id: str
    """
    What the program opens its stream for: the name of the skill
    """


class SkillTool(Model):
    description: str | None = None
    input_schema: Any
    name: str


class SkillsAnswer(Model):
    skills: list[Skill]


class SmokeTest(Model):
    argv: list[str] | None = None
    code: str | None = None
    exit_code: int
    expect: str | None = None
    language: str | None = None
    name: str
    run: str | None = None
    timeout_s: int


class ThreadUsage(Model):
    disk_bytes: int | None = None
    """
    Of the thread's files at measured_at; absent when they were not measured yet
    """
    exec_seconds: float
    """
    How long they took together
    """
    execs: int
    """
    Those that ended
    """
    measured_at: AwareDatetime | None = None


class ThreadVersions(Model):
    prompt: str
    """
    The version of GET /api/threads/{thread}/prompt
    """
    skills: str
    tools: str


class Timings(Model):
    create: float
    queue: float
    ready: float


class ToolCall(Model):
    error: str | None = None
    ms: int
    status: str
    tool: str


class ToolChange(Model):
    after: str | None = None
    before: str | None = None
    """
    sha256; absent when there was none
    """
    diff: str | None = None
    """
    Where the two part, at most 600 bytes, everything that is not plain escaped
    """
    field: str


class ToolDefinition(Model):
    defer_loading: bool | None = None
    """
    Register it only where the provider searches tools itself; search_tools finds it elsewhere
    """
    description: str
    input_schema: Any
    """
    JSON Schema of an object
    """
    name: str
    """
    A name with __ is that of an MCP server's tool, which POST …/tools/call calls; the others are routes of the thread
    """


class ToolDrift(Model):
    changes: list[ToolChange]
    hash: str
    """
    Of the tool as it is now; approving takes it
    """
    quarantined: bool
    """
    It is not listed, and calls of it are refused, until it is approved
    """
    seen_at: AwareDatetime
    server: str
    state: str
    tool: str


class ToolFound(Model):
    description: str | None = None
    findings: list[Finding] | None = None
    """
    Signs of poisoning, for administrators
    """
    name: str
    output: Any | None = None
    parameters: Any | None = None
    quarantined: bool | None = None
    """
    No thread gets it until it is approved
    """
    score: int | None = None
    """
    Of the findings: 10 for each rule of severity error, 3 for a warning, 1 for info
    """
    server: str
    short_name: str
    why: list[str] | None = None
    wrapper_path: str | None = None


class ToolLogin(Model):
    expires: AwareDatetime
    redirect_uri: str
    url: str


class ToolResult(Model):
    call_id: str
    content: list[Any] | None = None
    file: ResultFile | None = None
    is_error: bool
    ms: int
    result: Any
    structured_content: Any | None = None


class ToolSearch(Model):
    also: list[str] | None = None
    """
    At detail full without a limit: the names of the next best tools, which are not described
    """
    match_count: int
    query: str
    server_filter: str
    showing: int
    tools: list[ToolFound]


class ToolServer(Model):
    description: str
    error: str | None = None
    name: str
    state: str
    tool_count: int
    transport: str


class Transferred(Model):
    bytes: int
    content: str | None = None
    """
    Of a download
    """
    detail: str | None = None
    encoding: str | None = None
    error: str | None = None
    path: str


class TypedCommand(Model):
    args: str | None = None
    command: str | None = None
    """
    The command, as plugin:command
    """
    findings: list[Finding]
    message: str
    """
    What to send to the agent: the text of the command, or the message as it came
    """
    near: list[str] | None = None
    """
    Commands whose names look like the unknown one, at most 3
    """
    recognised: bool
    unknown: str | None = None
    """
    The name of a message that has the form of a command and is none
    """


class TypedMessage(Model):
    text: str
    """
    The message, such as /sales:call-prep Acme
    """


class Unpacked(Model):
    bytes: int
    files: int
    path: str


class UsageAmounts(Model):
    code_tool_calls: int
    """
    Those of the tool calls that code in sandboxes made
    """
    cpu_seconds: float
    exec_seconds: float
    execs: int
    """
    Those that ended
    """
    refused: int
    """
    Calls that met a limit
    """
    requests: int
    returned_bytes: int
    """
    What the callers got of it: the answers to direct calls, and the output of programs that called tools
    """
    sandbox_seconds: float
    sandbox_starts: int
    tool_calls: int
    tool_result_bytes: int
    """
    What tools answered
    """


class UsageItem(Model):
    code_tool_calls: int
    """
    Those of the tool calls that code in sandboxes made
    """
    cpu_seconds: float
    day: str | None = None
    exec_seconds: float
    execs: int
    """
    Those that ended
    """
    key_id: str | None = None
    refused: int
    """
    Calls that met a limit
    """
    requests: int
    returned_bytes: int
    """
    What the callers got of it: the answers to direct calls, and the output of programs that called tools
    """
    sandbox_seconds: float
    sandbox_starts: int
    tool_calls: int
    tool_result_bytes: int
    """
    What tools answered
    """
    user: str | None = None


class UsageReport(Model):
    by: str
    from_: Annotated[str, Field(alias="from")]
    """
    A day, in UTC
    """
    items: list[UsageItem]
    limits: list[LimitState]
    """
    Those of the caller's tenant, of the caller and of the key
    """
    to: str
    total: UsageAmounts


class VirtualSkill(Model):
    category: str
    channel: SkillKey | None = None
    """
    With channel: by what a program provides the tools
    """
    description: str
    digest: str
    findings: list[Finding]
    location: str
    name: str


class WaitingInterpreter(Model):
    forks: bool | None = None
    language: str
    memory_bytes: int
    starting: bool | None = None


class Wasm(Model):
    cpu_s: int | None = None
    memory_bytes: int | None = None


class WatchedChange(Model):
    change: str
    is_dir: bool
    path: str


class Why(Model):
    effect: str
    policy: str
    rules: list[Reason] | None = None


class Written(Model):
    bytes: int
    etag: str
    """
    Of the file as this call left it, for If-Match
    """
    path: str


class ActiveSkill(Model):
    allowed_tools: list[str]
    """
    allowed-tools of SKILL.md, one entry a tool: a pre-approval. Rules of the policy can make a limit of it
    """
    content: str
    """
    The instructions between tags, with the folder and the files of the skill: ready for the model
    """
    location: str
    """
    Of SKILL.md, in the sandbox
    """
    name: str
    resources: list[str]
    """
    Its other files, relative to the folder of SKILL.md
    """
    tools: list[SkillTool] | None = None
    """
    Those of its channel, which can be called from now on
    """


class Approval(Model):
    annotations: Any | None = None
    """
    What the MCP server says of the tool; hints of a stranger
    """
    args_hash: str
    """
    sha256 of the arguments as they are
    """
    arguments: Any | None = None
    """
    Redacted, at most 4 KiB
    """
    bytes: int
    """
    Of the arguments
    """
    created_at: AwareDatetime
    decision: ApprovalDecision | None = None
    exec_id: str | None = None
    expires_at: AwareDatetime
    """
    Denied without a decision by then; for an approval that no call has used, its end
    """
    id: str
    key_id: str | None = None
    record: str | None = None
    request_id: str | None = None
    server: str | None = None
    skill: str | None = None
    state: str
    tenant: str
    thread_id: str
    tool: str
    used_at: AwareDatetime | None = None
    user: str
    why: str
    """
    The rule that asks
    """


class AuditFacet(Model):
    other: int
    """
    Records with another value than these
    """
    values: list[AuditFacetValue]
    """
    At most 20
    """


class AuditPage(Model):
    items: list[AuditRecord]
    next_cursor: str | None = None
    """
    Send it as cursor to get the rest; not there at the end
    """
    partial: bool | None = None
    """
    The page is shorter than asked for because looking took long: next_cursor goes on
    """


class AuditSummary(Model):
    actions: AuditFacet
    bucket_s: int
    """
    How long a bucket is, in seconds
    """
    buckets: list[AuditBucket]
    """
    Oldest first, without a gap
    """
    count: int
    """
    Records
    """
    counted_since: AwareDatetime | None = None
    denied: int
    """
    Of them, those whose outcome is denied
    """
    failed: int
    """
    Of them, those whose outcome is another failure: error, timeout, oom, killed, lost, expired, refused
    """
    from_: Annotated[AwareDatetime, Field(alias="from")]
    """
    Where the first bucket begins
    """
    outcomes: AuditFacet
    """
    Of results
    """
    partial: bool
    """
    Counting stopped at a bound: records before counted_since are missing
    """
    tools: AuditFacet
    """
    Of tool calls
    """
    until: AwareDatetime
    """
    Where the last bucket ends
    """
    users: AuditFacet


class AuditVerification(Model):
    first_bad: AuditBadRecord | None = None
    heads: list[AuditHead] | None = None
    ok: bool
    records: int
    writers: list[AuditWriter] | None = None


class ChangedCall(Model):
    action: str
    now: str
    record: str
    """
    Id of its audit record
    """
    rules: list[Reason] | None = None
    """
    Those that decide then; none: the default
    """
    subject: str
    then: str
    thread_id: str
    ts: AwareDatetime
    user: str


class ExecResult(Model):
    context: ContextOutcome | None = None
    detail: str | None = None
    duration_ms: int
    encoding: str | None = None
    exec_id: str
    exit_code: int | None
    files: list[FileChange]
    files_truncated: bool | None = None
    left_processes: int | None = None
    results: list[dict[str, Any]] | None = None
    results_left_out: int | None = None
    status: str
    stderr: str
    stderr_path: str | None
    stdout: str
    stdout_path: str | None
    tools_called: list[ToolCall] | None = None
    truncated: bool
    usage: ExecUsage


class FoundSkills(Model):
    match_count: int
    query: str
    skills: list[SkillFound]
    """
    At most 15, best first
    """


class Marketplace(Model):
    added_at: AwareDatetime
    description: str | None = None
    findings: list[Finding]
    name: str
    owner: str | None = None
    plugins: list[MarketplaceEntry]
    skills: list[MarketplaceEntry] | None = None
    source: PluginSource


class PackInfo(Model):
    calls: int
    """
    Calls of this connection
    """
    description: str | None = None
    error: str | None = None
    """
    Why agents do not have it now
    """
    id: str
    identity: str
    """
    The credential that provides it
    """
    late: int
    """
    Answers of this connection that came when no caller waited for them
    """
    max_parallel_calls: int
    running: int
    """
    Calls under way
    """
    server: str | None = None
    """
    The other server that it is connected to; absent: this one
    """
    since: AwareDatetime
    """
    When it connected, or went
    """
    source: str
    """
    The address that it came from
    """
    state: str
    tenant: str | None = None
    """
    Whose users have it; all when absent
    """
    tool_count: int
    tools: list[PackTool] | None = None
    version: str


class PageApproval(Model):
    items: list[Approval]
    next_cursor: str | None = None
    """
    Send it as cursor to get the rest; not there at the end
    """


class PageInfo(Model):
    items: list[Secret]
    next_cursor: str | None = None
    """
    Send it as cursor to get the rest; not there at the end
    """


class PageMarketplace(Model):
    items: list[Marketplace]
    next_cursor: str | None = None
    """
    Send it as cursor to get the rest; not there at the end
    """


class PagePackInfo(Model):
    items: list[PackInfo]
    next_cursor: str | None = None
    """
    Send it as cursor to get the rest; not there at the end
    """


class PagePluginCommand(Model):
    items: list[PluginCommand]
    next_cursor: str | None = None
    """
    Send it as cursor to get the rest; not there at the end
    """


class PageProcess(Model):
    items: list[Process]
    next_cursor: str | None = None
    """
    Send it as cursor to get the rest; not there at the end
    """


class PageServerStatus(Model):
    items: list[ServerStatus]
    next_cursor: str | None = None
    """
    Send it as cursor to get the rest; not there at the end
    """


class PageToolDrift(Model):
    items: list[ToolDrift]
    next_cursor: str | None = None
    """
    Send it as cursor to get the rest; not there at the end
    """


class PageToolFound(Model):
    items: list[ToolFound]
    next_cursor: str | None = None
    """
    Send it as cursor to get the rest; not there at the end
    """


class PageTransferred(Model):
    items: list[Transferred]
    next_cursor: str | None = None
    """
    Send it as cursor to get the rest; not there at the end
    """


class PastReport(Model):
    calls: int
    """
    That were tried
    """
    changed: int
    """
    Calls on which the rules that are tried say something else than those in force
    """
    items: list[ChangedCall]
    """
    Calls with another effect, the newest first; 200 at most
    """
    notes: list[str]
    """
    What may have been otherwise when the calls were made
    """
    now: Effects
    """
    What the rules in force say
    """
    partial: bool | None = None
    """
    It stopped at a bound of 50,000 records or ten seconds: since says how far it came
    """
    since: AwareDatetime
    then: Effects
    """
    What the rules that are tried say
    """
    unread: int | None = None
    """
    Calls whose arguments were not kept whole, on which nothing was tried
    """
    until: AwareDatetime


class Plugin(Model):
    author: str | None = None
    commands: list[PluginCommand]
    description: str
    digest: str
    display_name: str | None = None
    enabled: bool
    findings: list[Finding]
    format: str
    homepage: str | None = None
    installed_at: AwareDatetime
    keywords: list[str] | None = None
    license: str | None = None
    location: str
    mcp_servers: list[PluginServer]
    name: str
    options: list[PluginOption] | None = None
    repository: str | None = None
    shared: bool
    skills: list[PluginSkill]
    source: PluginSource
    version: str | None = None


class PluginInstalled(Model):
    findings: list[Finding]
    message: str
    plugin: Plugin
    plugin_name: str
    success: bool


class Prompt(Model):
    mode: str
    sections: dict[str, str]
    text: str
    tools: list[ToolDefinition]
    version: str
    """
    A digest of the rest: it changes when what is answered does, and is the same on each server. The ETag has it, too
    """


class Sandbox(Model):
    created_at: AwareDatetime
    driver: str
    env_names: list[str] | None = None
    """
    Names of the variables that each exec has, of the template and of PUT …/sandbox; in the answer for one thread alone
    """
    id: str
    idle_timeout_s: int
    loosened: list[str] | None = None
    runtime: str
    state: str
    template: str
    timings_ms: Timings
    waiting: list[WaitingInterpreter] | None = None
    warm: bool


class SandboxAnswer(Model):
    sandbox: Sandbox
    thread_id: str


class SandboxOnly(Model):
    sandbox: Sandbox


class ServersAnswer(Model):
    servers: list[ToolServer]
    total_tools: int


class Template(Model):
    deno: DenoPermissions | None = None
    description: str
    env: dict[str, str] | None = None
    idle_timeout_s: int
    image: str | None = None
    """
    What the driver starts: a reference, or a folder of the host; for operators
    """
    interpreters: dict[str, Interpreter] | None = None
    javascript: str | None = None
    languages: list[str]
    limits: Limits
    loosened: list[str] | None = None
    max_age_s: int | None = None
    name: str
    pool: Pool | None = None
    runtime: str
    smoke: list[SmokeTest] | None = None
    wasm: Wasm | None = None


class Thread(Model):
    active_tools: list[str] | None = None
    """
    Tools that a full search showed, or that were activated by name, oldest first
    """
    capabilities: list[str] | None = None
    created_at: AwareDatetime
    labels: dict[str, str]
    last_active_at: AwareDatetime
    mode: str | None = None
    sandbox: Sandbox | None = None
    skills: list[str] | None = None
    tenant: str
    thread_id: str
    usage: ThreadUsage | None = None
    """
    As it was last written; absent when nothing was yet
    """
    user: str
    workspace: DiskUsage
    """
    Measured for this answer; zeros in a list
    """


class ThreadEvent(Model):
    approval: ApprovalSummary | None = None
    """
    With approval.requested and approval.decided
    """
    at: AwareDatetime
    exec: ExecInfo | None = None
    """
    With exec.started and exec.ended; the subject is cut to 200 characters
    """
    files: ChangedFiles | None = None
    """
    With files.changed
    """
    id: str | None = None
    """
    Resume behind it: send it as Last-Event-ID, or as after
    """
    kind: str
    sandbox: ChangedSandbox | None = None
    """
    With the kinds that begin with sandbox.
    """
    versions: ThreadVersions | None = None
    """
    As the caller sees the thread now; with started, reset and the three kinds of change
    """


class ThreadPage(Model):
    items: list[Thread]
    next_cursor: str | None = None
    """
    Send it as cursor to get the rest; not there at the end. A page may be shorter than limit, even empty, and have one
    """
    total: int | None = None
    """
    How many threads there are, whatever the filter; in the first page only
    """


class Trial(Model):
    call: Sample
    """
    The call as it was tried
    """
    effect: str
    limits: Bounds | None = None
    notes: list[str]
    """
    What may have been otherwise when the call was made
    """
    redact: Hides | None = None
    why: Why


class PagePlugin(Model):
    items: list[Plugin]
    next_cursor: str | None = None
    """
    Send it as cursor to get the rest; not there at the end
    """


class PageTemplate(Model):
    items: list[Template]
    next_cursor: str | None = None
    """
    Send it as cursor to get the rest; not there at the end
    """
