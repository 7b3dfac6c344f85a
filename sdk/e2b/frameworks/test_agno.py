"""The tools of agno for E2B, each as a model calls it."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agno.agent import Agent
from agno.tools.e2b import E2BTools


@pytest.fixture(scope="module")
def tools() -> Iterator[E2BTools]:
    made = E2BTools(timeout=600)
    yield made
    made.shutdown_sandbox()


def failed(answer: Any) -> bool:
    return isinstance(answer, str) and '"status": "error"' in answer


def test_all_tools_are_tested(tools: E2BTools) -> None:
    assert len(tools.functions) == 19


def test_code(tools: E2BTools) -> None:
    assert "Result 1: 42" in tools.run_python_code("x = 41\nx + 1")


def test_code_keeps_variables(tools: E2BTools) -> None:
    tools.run_python_code("kept = 7")
    assert "Result 1: 7" in tools.run_python_code("kept")


def test_code_prints(tools: E2BTools) -> None:
    assert "said" in tools.run_python_code("print('said')")


def test_error_of_code(tools: E2BTools) -> None:
    assert tools.run_python_code("1 / 0").startswith("Error: ZeroDivisionError")


def test_command(tools: E2BTools) -> None:
    assert json.loads(tools.run_command("echo out; echo err >&2")) == ["STDOUT:\nout\n", "STDERR:\nerr\n"]


def test_command_fails(tools: E2BTools) -> None:
    assert "code 3" in tools.run_command("exit 3")


def test_stream(tools: E2BTools) -> None:
    assert "STDOUT: one" in tools.stream_command("echo one")


def test_background(tools: E2BTools) -> None:
    command = tools.run_background_command("sleep 300")
    assert not isinstance(command, str), command
    assert tools.kill_background_command(command) == "Background command terminated successfully."


def test_background_of_run_command(tools: E2BTools) -> None:
    assert tools.run_command("sleep 1", background=True).startswith("Command started")


def test_files(tools: E2BTools) -> None:
    assert not failed(tools.write_file_content("/home/user/a.txt", "one\n"))
    assert tools.read_file_content("/home/user/a.txt") == "one\n"


def test_files_elsewhere(tools: E2BTools) -> None:
    assert not failed(tools.write_file_content("/tmp/a.txt", "two\n"))
    assert tools.read_file_content("/tmp/a.txt") == "two\n"


def test_list(tools: E2BTools) -> None:
    tools.write_file_content("/home/user/listed.txt", "x")
    assert "listed.txt" in tools.list_files("/home/user")


def test_list_root(tools: E2BTools) -> None:
    assert "home" in tools.list_files()


def test_upload(tools: E2BTools, tmp_path: Path) -> None:
    (tmp_path / "up.bin").write_bytes(bytes(range(256)))
    assert tools.upload_file(str(tmp_path / "up.bin")).endswith("/up.bin")
    assert "256" in tools.run_command("wc -c <up.bin")


def test_download(tools: E2BTools, tmp_path: Path) -> None:
    tools.write_file_content("down.txt", "down\n")
    tools.download_file_from_sandbox("down.txt", str(tmp_path / "down.txt"))
    assert (tmp_path / "down.txt").read_text() == "down\n"


def test_missing_file(tools: E2BTools) -> None:
    assert failed(tools.read_file_content("/home/user/none"))


def test_picture(tools: E2BTools, tmp_path: Path) -> None:
    tools.run_python_code("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()")
    assert tools.download_png_result(Agent(), 0, str(tmp_path / "p.png")).images
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_chart(tools: E2BTools, tmp_path: Path) -> None:
    tools.run_python_code("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.title('two')\nplt.show()")
    assert "Title: two" in str(tools.download_chart_data(Agent(), 0, str(tmp_path / "c.json")).content)


def test_watch(tools: E2BTools) -> None:
    tools.run_command("mkdir -p watched")
    writer = threading.Timer(1, lambda: tools.write_file_content("/home/user/watched/a.txt", "x"))
    writer.start()
    assert "a.txt" in tools.watch_directory("/home/user/watched", duration_seconds=4)
    writer.join()


def test_timeout(tools: E2BTools) -> None:
    assert tools.set_sandbox_timeout(500) == "500"


def test_status(tools: E2BTools) -> None:
    assert tools.get_sandbox_status() in (tools.sandbox.sandbox_id, "Unknown")


def test_list_sandboxes(tools: E2BTools) -> None:
    assert tools.sandbox.sandbox_id in tools.list_running_sandboxes()


def test_port(tools: E2BTools) -> None:
    import urllib.request

    url = tools.run_server("python3 -m http.server 8000", 8000)
    time.sleep(1)
    assert urllib.request.urlopen(url, timeout=5).status == 200


def test_public_url(tools: E2BTools) -> None:
    assert tools.get_public_url(8000).startswith("http://8000-")


def test_shutdown() -> None:
    own = E2BTools(timeout=60)
    assert json.loads(own.shutdown_sandbox())["content"] is True
    assert not own.sandbox.is_running()
