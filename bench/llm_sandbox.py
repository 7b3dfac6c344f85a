# One open session of llm-sandbox: each line on stdin runs print(1) in it, and its output is a line on stdout.
import signal
import sys

from llm_sandbox import SandboxSession

signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
container = {"command": ["sleep", "3600"], "network_mode": "none"}
with SandboxSession(lang="python", image=sys.argv[1], skip_environment_setup=True, keep_template=True, runtime_configs=container) as session:
    # It calls python by that name, which Debian does not have.
    session.execute_command("ln -s /usr/bin/python3 /usr/local/bin/python")
    print("ready", flush=True)
    for _ in sys.stdin:
        print(session.run("print(1)").stdout.strip(), flush=True)
