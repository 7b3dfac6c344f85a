# The interpreter of a stateful context in Python: it lives on between runs. Package process describes
# the frames on descriptor 3 (Session); each run is one cell of IPython. Code of the agent shares this
# process: it can break the context, and nothing else.
import base64
import fcntl
import json
import os
import signal
import sys
import types

# Limits of what a run displays in its answer; package process has the last word.
MAX_RESULTS = 64
MAX_INLINE = 1 << 20  # bytes of one MIME type; more goes into a file
MAX_TOTAL = 6 << 20
MAX_KEPT = 64 << 20  # bytes of the file with the results beyond MAX_RESULTS
FILES = "application/vnd.skerry.file+json"
ENDINGS = {
    "text/plain": "txt", "text/html": "html", "text/markdown": "md", "text/latex": "tex", "image/png": "png",
    "image/jpeg": "jpg", "image/svg+xml": "svg", "application/json": "json", "application/pdf": "pdf", "application/javascript": "js",
}


class Channel:
    """The frames to and from sandboxd. The descriptor is one that no child inherits."""

    def __init__(self, fd):
        self.fd = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 200)
        os.close(fd)
        self.pid = os.getpid()

    def _exactly(self, n):
        data = bytearray()
        while len(data) < n:
            part = os.read(self.fd, min(n - len(data), 1 << 20))
            if not part:
                os._exit(0)  # sandboxd is gone
            data += part
        return bytes(data)

    def receive(self):
        return json.loads(self._exactly(int.from_bytes(self._exactly(4), "little")))

    def send(self, message):
        if os.getpid() != self.pid:
            os._exit(0)  # a fork of the agent's that came back
        body = json.dumps(message, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
        data = memoryview(len(body).to_bytes(4, "little") + body)
        while data:
            data = data[os.write(self.fd, data):]


class Results:
    """What one run displays."""

    def __init__(self, folder):
        self.folder = folder
        self.items = []  # JSON objects
        self.named = {}  # display id -> index
        self.total = 0
        self.files = 0
        self.left_out = 0
        self.kept = 0

    def add(self, bundle, display_id=None, update=False):
        item = {mime: self._text(mime, data) for mime, data in bundle.items() if isinstance(mime, str) and data is not None}
        if not item:
            return
        if update and display_id in self.named:
            self.items[self.named[display_id]] = self._fit(item)
        elif len(self.items) >= MAX_RESULTS:
            self.left_out += 1
            self._keep(item)
        else:
            if display_id is not None:
                self.named[display_id] = len(self.items)
            self.items.append(self._fit(item))

    def clear(self):
        self.items, self.named = [], {}

    @staticmethod
    def _text(mime, data):
        if isinstance(data, (bytes, bytearray)):
            return base64.b64encode(data).decode("ascii")
        if isinstance(data, str):
            return data
        if mime == "application/json" or mime.endswith("+json"):
            try:
                return json.loads(json.dumps(data, allow_nan=False))
            except (TypeError, ValueError):
                pass
        return str(data)

    def _fit(self, item):
        """Puts data that is too large for the answer into files."""
        fitted, files = {}, []
        for mime, data in item.items():
            size = len(json.dumps(data, ensure_ascii=False).encode("utf-8", "replace"))
            if size <= MAX_INLINE and self.total + size <= MAX_TOTAL:
                self.total += size
                fitted[mime] = data
                continue
            try:
                files.append(self._write(mime, data))
            except OSError as err:
                print(f"a result of {size} bytes ({mime}) could not be kept: {err}", file=sys.stderr)
        if files:
            fitted[FILES] = files
        return fitted

    def _write(self, mime, data):
        if isinstance(data, str) and (mime.startswith("image/") and mime != "image/svg+xml" or mime == "application/pdf"):
            content = base64.b64decode(data)
        else:
            content = (data if isinstance(data, str) else json.dumps(data)).encode("utf-8", "replace")
        os.makedirs(self.folder, exist_ok=True)
        self.files += 1
        path = os.path.join(self.folder, f"result-{self.files}.{ENDINGS.get(mime, 'bin')}")
        with open(path, "xb") as f:
            f.write(content)
        return {"mime": mime, "path": path, "bytes": len(content)}

    def _keep(self, item):
        line = json.dumps(item, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        self.kept += len(line)
        if self.kept > MAX_KEPT:
            return
        path = os.path.join(self.folder, "results.jsonl")
        try:
            os.makedirs(self.folder, exist_ok=True)
            with open(path, "ab") as f:
                f.write(line)
        except OSError as err:
            print(f"results could not be kept: {err}", file=sys.stderr)
            return
        if self.left_out == 1:
            print(f"only {MAX_RESULTS} results are in the answer; the others are in {path}", file=sys.stderr)


def make_shell():
    """IPython's shell, whose output becomes results."""
    # Files of the agent's own folder must not stand in for modules of IPython while it is loaded.
    path, sys.path = sys.path, [p for p in sys.path if p != os.getcwd()]
    try:
        from IPython.core.displayhook import DisplayHook
        from IPython.core.displaypub import DisplayPublisher
        from IPython.core.interactiveshell import InteractiveShell
        from traitlets.config import Config
    finally:
        sys.path = path

    class Hook(DisplayHook):
        def write_output_prompt(self):
            pass

        def write_format_data(self, format_dict, md_dict=None):
            if self.shell.for_e2b.wanted:
                format_dict = {**format_dict, "application/vnd.e2b.main+json": True}
            self.shell.results.add(format_dict)

        def finish_displayhook(self):
            pass

    class Publisher(DisplayPublisher):
        def publish(self, data, metadata=None, source=None, *, transient=None, update=False, **kwargs):
            self.shell.results.add(data, (transient or {}).get("display_id"), update)

        def clear_output(self, wait=False):
            self.shell.results.clear()

    class Shell(InteractiveShell):
        results = None
        system = InteractiveShell.system_raw  # a child has no terminal

        def _showtraceback(self, etype, evalue, stb):
            if not issubclass(etype, SystemExit):
                print(self.InteractiveTB.stb2text(stb), file=sys.stderr)

        def ask_exit(self):
            print("a context ends by DELETE; sys.exit() ends the run", file=sys.stderr)

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "NoColor"
    config.InteractiveShell.xmode = "Plain"
    config.InteractiveShell.cache_size = 100
    config.InteractiveShell.separate_in = ""
    # A module of its own: what the agent defines can be pickled, and this file is not in its way.
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    shell = Shell.instance(config=config, user_module=main, user_ns=main.__dict__, displayhook_class=Hook, display_pub_class=Publisher)
    shell.results = Results("/nonexistent")
    shell.for_e2b = ForE2B(shell)
    return shell


class ForE2B:
    """What E2B's clients get of a result beside its pictures and texts, in runs that ask for it: frames and charts as data, and
    which result is the value of the code."""

    def __init__(self, shell):
        self.wanted = False
        of = shell.display_formatter
        for mime, data in ("application/vnd.e2b.data+json", self.frame), ("application/vnd.e2b.chart+json", self.chart):
            of.formatters[mime] = self.formatter(of, mime, data)

    def formatter(self, of, mime, data):
        from IPython.core.formatters import BaseFormatter
        from traitlets import Unicode

        outer = self

        class Formatter(BaseFormatter):
            format_type = Unicode(mime)
            _return_type = dict

            def __call__(self, obj):
                try:
                    return data(obj) if outer.wanted else None
                except Exception:  # the result has its other forms
                    return None

        return Formatter(parent=of)

    @staticmethod
    def frame(obj):
        pandas = sys.modules.get("pandas")  # who has a frame has loaded it
        if pandas is None or not isinstance(obj, pandas.DataFrame):
            return None
        split = json.loads(obj.to_json(orient="split", date_format="iso", default_handler=str))
        return {str(name): [row[i] for row in split["data"]] for i, name in enumerate(split["columns"])}

    @staticmethod
    def chart(obj):
        figure = sys.modules.get("matplotlib.figure")
        if figure is None or not isinstance(obj, figure.Figure):
            return None
        import warnings

        from e2b_charts import chart_figure_to_dict

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of numbers of NumPy, which become plain ones here
            chart = chart_figure_to_dict(obj)
        return json.loads(json.dumps(chart, default=lambda v: v.item() if hasattr(v, "item") else str(v))) or None


class Wrappers:
    """Forgets imported wrappers of tools when the server has written others."""

    def __init__(self, folder):
        self.folder = folder
        self.seen = self._stamp()

    def _stamp(self):
        stamps = []
        for name in ("servers", "skills"):
            try:
                s = os.stat(os.path.join(self.folder, name))
                stamps.append((s.st_ino, s.st_mtime_ns))
            except OSError:
                stamps.append(None)
        return stamps

    def refresh(self):
        stamp = self._stamp()
        if stamp == self.seen:
            return
        self.seen = stamp
        import importlib

        importlib.invalidate_caches()
        for name in list(sys.modules):
            if name.partition(".")[0] in ("servers", "skills"):
                del sys.modules[name]


def exit_code(error, stderr):
    if error is None:
        return 0
    if isinstance(error, KeyboardInterrupt):
        return 130
    if not isinstance(error, SystemExit):
        return 1
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    print(error.code, file=stderr)
    return 1


class Kernel:
    def __init__(self, shell, wrappers):
        self.shell = shell
        self.wrappers = wrappers

    def run(self, job):
        env = job.get("env") or {}
        if env.get("MPLBACKEND", "").lower() == "agg":  # "there is no screen": here there is one
            del env["MPLBACKEND"]
        self.shell.for_e2b.wanted = env.pop("E2B_RESULTS", "") == "data"
        before = {name: os.environ.get(name) for name in env}
        os.environ.update(env)
        self.shell.results = results = Results(job["dir"])
        error = None
        try:
            try:
                signal.signal(signal.SIGINT, signal.default_int_handler)  # the agent's own lasts for its run
                self.wrappers.refresh()
                done = self.shell.run_cell(job["code"], store_history=True)
                error = done.error_before_exec or done.error_in_exec
            finally:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
        except BaseException as err:  # an interrupt beside the cell
            error = err
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        code = exit_code(error, sys.stderr)
        for stream in {sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__}:
            try:
                stream.flush()
            except Exception:  # closed, or another's
                pass
        for name, value in env.items():
            if os.environ.get(name) != value:
                continue  # the run has set it
            if before[name] is None:
                del os.environ[name]
            else:
                os.environ[name] = before[name]
        return {"run": job["run"], "code": code, "results": results.items, "left_out": results.left_out}


def main():
    channel = Channel(3)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.environ.get("MPLBACKEND", "agg").lower() == "agg":
        os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # draws as agg does, and displays
    os.environ.setdefault("IPYTHONDIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "ipython"))
    try:
        shell = make_shell()
    except ImportError as err:
        channel.send({"refused": f"Python contexts need IPython in the image: {err}"})
        return
    import warnings

    warnings.filterwarnings("ignore", message="To exit: use")
    kernel = Kernel(shell, Wrappers("@CODE_API@"))
    channel.send({"ready": True})
    while True:
        job = channel.receive()
        answer = kernel.run(job)
        try:
            channel.send(answer)
        except (ValueError, TypeError, RecursionError) as err:
            channel.send({"run": job["run"], "code": answer["code"], "results": [{"text/plain": f"the results cannot be sent: {err}"}]})


main()
