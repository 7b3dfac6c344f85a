"""Client of Skerry, a self-hosted sandbox service for AI agents."""

from skerry._async.client import AsyncClient
from skerry._async.execs import Context as AsyncContext
from skerry._async.execs import Exec as AsyncExec
from skerry._async.files import Files as AsyncFiles
from skerry._async.files import content_of
from skerry._async.thread import Thread as AsyncThread
from skerry._constants import VERSION
from skerry._results import Event, ExecFailed, ExecResult, FileEvent
from skerry._sync.client import Client
from skerry._sync.execs import Context, Exec
from skerry._sync.files import Files
from skerry._sync.thread import Thread
from skerry.errors import APIError, ConnectionFailed, DeadlineExceeded, OutcomeUnknown, SkerryError

__version__ = VERSION

__all__ = [
    "APIError",
    "AsyncClient",
    "AsyncContext",
    "AsyncExec",
    "AsyncFiles",
    "AsyncThread",
    "Client",
    "ConnectionFailed",
    "Context",
    "DeadlineExceeded",
    "Event",
    "Exec",
    "ExecFailed",
    "ExecResult",
    "FileEvent",
    "Files",
    "OutcomeUnknown",
    "SkerryError",
    "Thread",
    "content_of",
]
