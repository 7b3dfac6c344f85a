# Runs code whose tools LibreChat calls. The first line of stdin is the code with the names of its tools. Each batch of calls is
# one marked line of stdout, which the server takes out and answers with one line of stdin.
import ast
import asyncio
import inspect
import json
import os
import sys

first = json.loads(sys.stdin.readline())
results, sys.stdin = sys.stdin, open(os.devnull)
loop = asyncio.new_event_loop()
calls, waiting, flushing, made = [], {}, None, 0


def decoded(result):
    """LibreChat tells models that they get dicts, lists and texts; most tools answer with the text of JSON."""
    try:
        value = json.loads(result) if isinstance(result, str) else None
    except ValueError:
        return result
    return value if isinstance(value, (dict, list)) else result


async def flush():
    """Sends the calls that code began together, and hands out their results."""
    global flushing
    while calls:
        for _ in range(3):
            await asyncio.sleep(0)
        batch, calls[:] = calls[:], []
        sys.stdout.write("\x1e" + first["mark"] + json.dumps(batch) + "\n")
        sys.stdout.flush()
        line = await asyncio.wait_for(loop.run_in_executor(None, results.readline), first["patience"])
        if not line:
            os._exit(75)
        for r in json.loads(line):
            waiter = waiting.pop(r["call_id"], None)
            if waiter is None or waiter.done():
                continue
            if r["is_error"]:
                waiter.set_exception(RuntimeError(r["error_message"] or "the tool failed"))
            else:
                waiter.set_result(decoded(r["result"]))
    flushing = None


def tool(name):
    async def call(**arguments):
        global flushing, made
        made += 1
        ident = f"call_{made:03d}"
        waiting[ident] = loop.create_future()
        calls.append({"id": ident, "name": name, "input": arguments})
        if flushing is None:
            flushing = loop.create_task(flush())
            flushing.add_done_callback(ended)
        return await waiting[ident]

    return call


def ended(task):
    if not task.cancelled() and task.exception() is not None:
        print("no results came for the calls of tools:", repr(task.exception()), file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(75)


async def main():
    names = {"__name__": "__main__", "asyncio": asyncio, "json": json, **{t["python"]: tool(t["name"]) for t in first["tools"]}}
    program = compile(first["code"], "main.py", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    value = eval(program, names)
    if inspect.iscoroutine(value):
        await value


asyncio.set_event_loop(loop)
loop.run_until_complete(main())
