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

    def preload(names):
        # The program must not see anything of it: neither what is printed, nor that one is broken.
        saved = [os.dup(1), os.dup(2)]
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        for name in names:
            try:
                __import__(name)
            except BaseException:
                pass
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os.dup2(saved[0], 1)
        os.dup2(saved[1], 2)
        for fd in (*saved, null):
            os.close(fd)

    loaded = [name for name in os.environ.get("SKERRY_PRELOAD", "").split(",") if name]
    before = stamp()
    preload(loaded)
    if loaded:
        os.write(fd, b"\n")  # a program may be faster without it until here
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
    try:
        os.chdir(os.environ["PWD"])  # the folder of that name may be another one by now
    except OSError:
        pass
    # A module of the agent's own, in its folder, comes before the one that is loaded.
    tops = {name.partition(".")[0] for name in loaded}
    own = any(os.path.exists(top + ".py") or os.path.isdir(top) for top in tops)
    if own or stamp() != before:
        os.execv(sys.executable, [sys.executable, os.path.join(os.path.dirname(__file__), "main.py")])


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
