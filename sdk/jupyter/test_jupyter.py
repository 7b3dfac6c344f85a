"""Open WebUI's own module for code, and jupyter-kernel-client, with a server as their Jupyter."""

import asyncio
import json
import os
import pathlib
import re
import urllib.request

import pytest
from jupyter_kernel_client import JupyterKernelClient
from open_webui.utils.code_interpreter import execute_code_jupyter

SERVER = os.environ["SKERRY_SERVER"]
URL = SERVER + "/jupyter"


def run(code, timeout=60):
    return asyncio.run(execute_code_jupyter(URL, code, timeout=timeout))


def kernels():
    with urllib.request.urlopen(URL + "/api/kernels") as answer:
        return json.load(answer)


def test_open_webui_output():
    assert run("print(6 * 7)\nimport sys; print('so', file=sys.stderr)") == {"stdout": "42", "stderr": "so", "result": ""}


def test_open_webui_value():
    assert run("a = 20\na + 22")["result"] == "42"


def test_open_webui_picture():
    answer = run("from IPython.display import Image, display\nimport base64\ndisplay(Image(data=base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==')))")
    if "ModuleNotFoundError" in answer["stderr"]:
        pytest.fail("the default template has no IPython: " + answer["stderr"])
    assert answer["result"].startswith("data:image/png;base64,iVBORw0KGgo")


def test_open_webui_error():
    answer = run("def f():\n    return {}['x']\nprint('before')\nf()")
    assert answer["stdout"] == "before"
    assert "KeyError" in answer["stderr"] and answer["stderr"].count("Traceback") == 1


def test_open_webui_files_are_apart():
    """Each run of Open WebUI has a kernel of its own, and leaves none behind."""
    assert run("open('kept.txt', 'w').write('x')")["stderr"] == ""
    assert run("import os; print(os.path.exists('kept.txt'))")["stdout"] == "False"
    assert kernels() == []


def test_open_webui_timeout():
    assert "Execution timed out" in run("import time; time.sleep(60)", timeout=2)["stderr"]
    assert kernels() == []


def test_kernel_client():
    """A kernel keeps its variables, says what it displays as it comes, and can be interrupted and started again."""
    with JupyterKernelClient(server_url=URL, token=None) as kernel:
        assert kernel.execute("x = 1")["status"] == "ok"
        reply = kernel.execute("print('a'); x + 1")
        assert reply["execution_count"] == 2
        assert reply["outputs"][0] == {"output_type": "stream", "name": "stdout", "text": "a\n"}
        assert reply["outputs"][1]["data"]["text/plain"] == "2"
        reply = kernel.execute("1 / 0")
        assert reply["status"] == "error" and reply["outputs"][0]["ename"] == "ZeroDivisionError"
        kernel.restart()
        assert kernel.execute("x")["outputs"][0]["ename"] == "NameError"
        assert [k["id"] for k in kernels()] == [kernel.id]
    assert kernels() == []


def test_docs_jupyter_md(capsys):
    """The example of docs/jupyter.md works."""
    page = (pathlib.Path(__file__).parents[2] / "docs/jupyter.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.S)
    exec(example.replace("http://localhost:8080", SERVER), {})
    assert "'text/plain': '2'" in capsys.readouterr().out
