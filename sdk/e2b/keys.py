"""E2B's own Python SDK against a server that wants keys ($RED and $BLUE, of two tenants): without one nothing works, and each shows what is its own."""

import os
import urllib.error
import urllib.request

from e2b import AuthenticationException, NotFoundException
from e2b_code_interpreter import Sandbox

RED, BLUE = os.environ["RED"], os.environ["BLUE"]


def raises(kind, what):
    try:
        what()
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


box = Sandbox.create(timeout=600, api_key=RED, metadata={"of": "red"})
try:
    box.files.write("ink.txt", "red")
    assert box.commands.run("cat ink.txt").stdout == "red"
    assert box.run_code("6 * 7").text == "42"
    for key in ("e2b_00", "e2b_" + ("sk_" + "0" * 64).encode().hex()):
        raises(AuthenticationException, lambda: Sandbox.create(api_key=key))
        raises(AuthenticationException, lambda: Sandbox.connect(box.sandbox_id, api_key=key))
        raises(AuthenticationException, lambda: Sandbox.list(api_key=key).next_items())
        raises(AuthenticationException, lambda: Sandbox.kill(box.sandbox_id, api_key=key))
    raises(NotFoundException, lambda: Sandbox.connect(box.sandbox_id, api_key=BLUE))
    assert Sandbox.list(api_key=BLUE).next_items() == []
    assert not Sandbox.kill(box.sandbox_id, api_key=BLUE)
    assert [s.sandbox_id for s in Sandbox.list(api_key=RED).next_items()] == [box.sandbox_id]
    assert Sandbox.connect(box.sandbox_id, api_key=RED).files.read("ink.txt") == "red"
    # A signed URL stands for the key, and for nothing else.
    signed = box.download_url("ink.txt", "user", 60)
    with urllib.request.urlopen(signed) as answer:
        assert answer.read() == b"red"
    raises(urllib.error.HTTPError, lambda: urllib.request.urlopen(signed.replace("ink.txt", "other.txt")))
finally:
    assert box.kill()
print("done")
