"""Tools for the agents of a Skerry server that are functions of this program.

    from skerry.packs import BearerKey, Pack

    pack = Pack("crm", "1.0.0")

    @pack.tool
    def find_lead(name: str) -> Lead:
        \"\"\"Finds a lead by name\"\"\"
        return leads.find(name)

    pack.run("http://127.0.0.1:8080", BearerKey(key))

run connects to the server and answers calls until the program gets SIGTERM. It connects again when the connection is lost.
Async functions run on the event loop, others in threads of their own. The package needs the extra "packs".
"""

from skerry._versions import require

require("skerry.packs", "grpcio", "1.65", "2")
require("skerry.packs", "protobuf", "5", "8")

from skerry.packs._call import Caller, caller, cancelled, progress  # noqa: E402
from skerry.packs._credentials import TLS, BearerKey, Credential, SSHAgent, SSHKeyFile  # noqa: E402
from skerry.packs._pack import Disclosure, Pack  # noqa: E402
from skerry.packs._result import Result, ToolError  # noqa: E402
from skerry.packs._serve import Refused  # noqa: E402
from skerry.packs._skill import AsyncAttachedSkill, AttachedSkill, SkillTool, VirtualSkill  # noqa: E402

__all__ = [
    "TLS",
    "AsyncAttachedSkill",
    "AttachedSkill",
    "BearerKey",
    "Caller",
    "Credential",
    "Disclosure",
    "Pack",
    "Refused",
    "Result",
    "SSHAgent",
    "SSHKeyFile",
    "SkillTool",
    "ToolError",
    "VirtualSkill",
    "caller",
    "cancelled",
    "progress",
]
