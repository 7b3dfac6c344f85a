# Runs before the agent's code. The code API is loaded at the first call.
import builtins
import os
import sys


def _wait(fd):
    """Waits for the run that this process was started for: see StandbyEnv."""
    import site

    def stamp():
        found = []
        for folder in [*site.getsitepackages(), site.getusersitepackages()]:
            try:
                s = os.stat(folder)
                found.append((folder, s.st_ino, s.st_mtime_ns))
            except OSError:
                found.append((folder, 0, 0))
        return found

    before = stamp()
    text = b""
    while part := os.read(fd, 1 << 16):
        text += part
    if not text:
        os._exit(0)  # nobody needs it
    os.environ.clear()
    for line in text.split(b"\0")[:-1]:
        name, _, value = line.partition(b"=")
        os.environb[name] = value
    os.write(fd, b"\n")
    os.close(fd)
    if stamp() != before:
        os.execv(sys.executable, [sys.executable, os.path.join(os.path.dirname(__file__), "main.py")])
    try:
        os.chdir(os.environ["PWD"])  # the folder of that name may be another one by now
    except OSError:
        pass


if "SKERRY_STANDBY" in os.environ:
    _wait(int(os.environ["SKERRY_STANDBY"]))
del _wait


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
