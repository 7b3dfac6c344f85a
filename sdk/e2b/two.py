"""E2B's own Python SDK against two servers of one Redis ($A and $B): a sandbox is the same at both, wherever it lives."""

import os
import time

from e2b import CommandExitException, NotFoundException
from e2b_code_interpreter import Sandbox

A, B = ({"api_url": os.environ[name], "sandbox_url": os.environ[name]} for name in "AB")

here = Sandbox.create(timeout=600, metadata={"of": "a"}, **A)
there = Sandbox.connect(here.sandbox_id, **B)
there.files.write("f.txt", "written at b")
assert here.files.read("f.txt") == "written at b"
assert there.commands.run("cat f.txt; echo; id -u").stdout == here.commands.run("cat f.txt; echo; id -u").stdout
here.run_code("x = 41")
assert there.run_code("x + 1").text == "42"
long = here.commands.run("tee typed; sleep 300", background=True, stdin=True)
assert long.pid in [p.pid for p in there.commands.list()]
there.commands.send_stdin(long.pid, "typed at b\n")
deadline = time.monotonic() + 60
# Wait until tee has read: a command that is killed before has no output. tee may not have made its file yet.
while there.commands.run("cat typed || true").stdout != "typed at b\n":
    assert time.monotonic() < deadline, "it does not arrive"
assert there.commands.kill(long.pid)
try:
    long.wait()
    raise AssertionError("it was not killed")
except CommandExitException as e:
    assert e.stdout == "typed at b\n", e.stdout
assert [s.sandbox_id for s in Sandbox.list(**B).next_items()] == [here.sandbox_id]
assert there.pause()
assert not here.is_running()
here = Sandbox.connect(here.sandbox_id, timeout=600, **A)
assert there.run_code("x").text == "41"

# The one who was asked last says when it ends; the other one made it.
there.set_timeout(1)
deadline = time.monotonic() + 60
while here.is_running() or there.is_running():
    assert time.monotonic() < deadline, "it did not end on time"
    time.sleep(0.2)

# What was ended at one is not there at the other, and a command does not make it anew.
here = Sandbox.create(timeout=600, **B)
there = Sandbox.connect(here.sandbox_id, **A)
assert there.kill()
for what in (lambda: here.commands.run("true"), lambda: here.files.read("f.txt"), lambda: Sandbox.connect(here.sandbox_id, **B)):
    try:
        what()
        raise AssertionError("it is there")
    except NotFoundException:
        pass
    except Exception as e:  # noqa: BLE001 - the SDK takes what has ended for a timeout
        assert "was not found" in str(e), e
assert Sandbox.list(**B).next_items() == []
print("done")
