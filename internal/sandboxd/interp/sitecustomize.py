# Runs before the agent's code. The code API is loaded at the first call.
import builtins
import os
import sys

if "SKERRY_STANDBY" in os.environ:
    exec(os.environ["SKERRY_WAIT"], {"__file__": __file__})


def call_mcp_tool(*args, **kwargs):
    from helpers.call_mcp_tool import call_mcp_tool as call

    builtins.call_mcp_tool = call
    return call(*args, **kwargs)


builtins.call_mcp_tool = call_mcp_tool
for stream in (sys.stdout, sys.stderr):
    if stream is not None:
        # What was printed before a timeout is not lost, and comes as it is printed.
        stream.reconfigure(line_buffering=True)
try:
    # Modules beside the agent's files, as when it runs python there itself.
    sys.path.insert(0, os.getcwd())
except OSError:
    pass  # the folder is gone
