# What a Python that was started ahead does before its program is known: see StandbyEnv. sitecustomize.py runs it while
# nothing has read the program, and before the agent's folder is a place that modules are looked for in.
import os
import site
import sys


def take(name):
    """Gives a module that the program does not find loaded, unless it was."""
    known = name in sys.modules
    module = __import__(name)
    if not known:
        del sys.modules[name]
    return module


atexit, gc, weakref = take("atexit"), take("gc"), take("_weakref")
FD = int(os.environ["SKERRY_STANDBY"])
loaded = [name for name in os.environ["SKERRY_PRELOAD"].split(",") if name]
kept = None  # the modules that a zygote had loaded, in a fork of it
newest = None  # the last of them


def stamp(paths):
    """Tells whether files are the same as before."""
    found = []
    for path in paths:
        try:
            s = os.stat(path)
            found.append((s.st_dev, s.st_ino, s.st_mtime_ns, s.st_size))
        except OSError:
            found.append(None)
    return found


def preload():
    # The program must not see anything of it: neither what is printed, nor that one is broken.
    saved = [os.dup(1), os.dup(2)]
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    for name in loaded:
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


def sources():
    """Lists the files of loaded modules that code of the sandbox could change."""
    found, writable = [], {}
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or path == __file__:
            continue
        folder = os.path.dirname(path)
        if folder not in writable:
            writable[folder] = os.access(folder, os.W_OK)
        if writable[folder] or os.access(path, os.W_OK):
            found.append(path)
    return found


class Zygote:
    """Is forked for each run, and runs nothing of any: see process.Zygote."""

    def __init__(self):
        ctypes = take("_ctypes")
        self.control = take("_socket").socket(fileno=FD)
        libc = ctypes.dlopen(None, 0)
        prctl, fflush, libc_exit = (ctypes.dlsym(libc, name) for name in ("prctl", "fflush", "exit"))
        self.dumpable = lambda on: ctypes.call_function(prctl, (4, on, 0, 0, 0))
        self.fflush = lambda: ctypes.call_function(fflush, (None,))
        self.exit = lambda: ctypes.call_function(libc_exit, (0,))
        # No other process of the uid looks into this one, or writes its memory.
        if self.dumpable(0) != 0:
            raise OSError("prctl")

    def may_fork(self):
        """Tells whether a fork would share nothing with another one, and have all that this one has."""
        gc.collect()
        gc.freeze()  # what is here stays, so looking through it would only copy it
        pid = os.fork()  # libraries for arithmetic end their threads now, and start them when they are needed
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        with open("/proc/self/maps", "rb") as maps:
            shared = any(line.split()[1][1:4:2] == b"ws" for line in maps)
        files = len(os.listdir("/proc/self/fd")) - 1  # less that of the listing
        threads = [open("/proc/self/task/" + t + "/comm").read() for t in os.listdir("/proc/self/task")]
        # That of jemalloc, which pandas has by way of pyarrow, is done without in a fork: jemalloc sees to it.
        return not shared and files == 4 and len(threads) - threads.count("jemalloc_bg_thd\n") == 1

    def limits(self):
        """Gives what other processes of the uid can change of this one, and forks inherit."""
        with open("/proc/self/limits", "rb") as limits:
            return limits.read(), os.sched_getaffinity(0), os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)

    def serve(self):
        """Returns in each fork."""
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        os.dup2(null, 2)
        os.close(null)
        limits = self.limits()
        os.write(FD, b"z")
        try:
            while True:
                data, rights, _, _ = self.control.recvmsg(1, 64)
                fds = [int.from_bytes(r[i : i + 4], sys.byteorder) for _, _, r in rights for i in range(0, len(r) - 3, 4)]
                if not data or len(fds) != 4 or self.limits() != limits:
                    os._exit(0)
                # By a process between, so that the fork becomes a child of the supervisor.
                between = os.fork()
                if between == 0:
                    if os.fork() != 0:
                        os._exit(0)
                    return self.become(fds)
                os.waitpid(between, 0)
                for fd in fds:
                    os.close(fd)
                self.control.send(b"\n")
        except BaseException:
            os._exit(1)

    def become(self, fds):
        os.setsid()
        self.control.detach()
        for to, fd in enumerate(fds):
            os.dup2(fd, to)
            os.close(fd)
        # What a process of its own would have chosen anew. Modules that know of forks have done it by now.
        if "numpy.random" in sys.modules:
            sys.modules["numpy.random"].seed()
        if "multiprocessing.process" in sys.modules:
            sys.modules["multiprocessing.process"].current_process().authkey = os.urandom(32)
        if "threading" in sys.modules:
            sys.modules["threading"].main_thread()._set_native_id()
        if "logging" in sys.modules:
            logging, time = sys.modules["logging"], take("time")
            logging._startTime = time.time_ns() if isinstance(logging._startTime, int) else time.time()
        # What the garbage collector was told to leave alone it would not take down at the end.
        main = type(sys)("__main__")
        names = vars(main)
        names.clear()
        names.update(vars(sys.modules["__main__"]))
        if "__annotations__" in names:
            names["__annotations__"] = {}
        sys.modules["__main__"] = main
        os.write(FD, b"%d\n" % os.getpid())


def end():
    """Ends a fork whose program came to its end, as Python does, but for the modules that were loaded before: to take
    them down would copy them first, and takes longer than most programs. Whatever is unusual is left to Python.
    """
    main = sys.modules.get("__main__")
    names = vars(main) if type(main) is type(sys) else {}
    # Python takes __file__ away when a program has run to its end, and not when it raised SystemExit; it sets sys.last_…
    # when another exception ended it.
    if kept is None or "__file__" in names or "__name__" not in names or hasattr(sys, "last_type") or hasattr(sys, "last_exc"):
        return
    if len(sys._current_frames()) > 1 or "_interpreters" in sys.modules or "_xxsubinterpreters" in sys.modules:
        return
    del main, names
    if not flush():
        return
    for name in ("path", "argv", "path_hooks", "path_importer_cache", "meta_path"):
        setattr(sys, name, None)
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
    names, own = [], []
    for name in reversed(sys.modules):
        if name == newest:
            break
        names.append(name)
    for name in [*names, "__main__"]:
        module = sys.modules.pop(name)
        if isinstance(module, type(sys)) and kept.get(name) is not module:
            own.append(weakref.ref(module))
    libraries = any(str(getattr(ref(), "__file__", "")).endswith(".so") for ref in own)
    module = None
    gc.collect()
    for ref in own:
        module = ref()
        if module is not None:
            empty(vars(module))
        del module
    gc.collect()
    for left in gc.get_objects():
        if hasattr(type(left), "__del__"):
            break
    else:
        if flush():
            if libraries:  # one may do something at the end
                zygote.exit()
            zygote.fflush()
            os._exit(0)
    sys.modules.update(kept)


def flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except BaseException:
            return False
    return True


def empty(names):
    """Empties a module in the order of Python's own end."""
    for private in (True, False):
        for name in list(names):
            if isinstance(name, str) and name != "__builtins__" and (not private or name[:1] == "_" != name[1:2]):
                names[name] = None


def rehearse():
    """Does what is to be done soon. A fork gets pages of its own as it writes in them, so now and not while a run waits."""
    os.environb[b"X"] = b"x"
    os.environ.clear()
    stamp(watched)
    exec(compile(REHEARSAL, "x", "exec"), {"__name__": "x", "take": take})
    flush()
    sys._current_frames()
    gc.collect()


REHEARSAL = """
import os, sys
class A:
    def f(self, x, *y, **z):
        return [f"{x} {i:d}" for i in y]
try:
    b = " ".join(A().f(1, 2, 3.5 and 4)).encode().decode().split()
    raise KeyError(b)
except KeyError as e:
    c = {str(e): (e, None), **{"a": 1}}
with open("/dev/null", "w") as f:
    print(1, sorted(c), file=f, flush=True)
"""


def wait():
    text = b""
    while part := os.read(FD, 1 << 16):
        text += part
    if not text:
        os._exit(0)  # nobody needs it
    if os.environ:
        os.environ.clear()
    for line in text.split(b"\0")[:-1]:
        name, _, value = line.partition(b"=")
        os.environb[name] = value
    try:
        os.chdir(os.environ["PWD"])  # the folder of that name may be another one by now
    except OSError:
        pass
    stale = stamp(watched) != before
    os.write(FD, b"s" if stale else b"\n")
    os.close(FD)
    # A module of the agent's own, in its folder, comes before the one that is loaded.
    tops = {name.partition(".")[0] for name in loaded}
    own = any(os.path.exists(top + ".py") or os.path.isdir(top) for top in tops)
    if zygote is not None:
        zygote.dumpable(1)
    if own or stale:
        os.execv(sys.executable, [sys.executable, os.path.join(os.path.dirname(__file__), "main.py")])


zygote = None
if "SKERRY_FORKS" in os.environ:
    try:
        zygote = Zygote()
    except BaseException:
        pass  # no ctypes, say
first = atexit._ncallbacks() == 0
if zygote is not None and first:
    atexit.register(end)  # before any other, so that it is called last
watched = [*site.getsitepackages(), site.getusersitepackages()]
before = stamp(watched)
preload()
for path, finder in list(sys.path_importer_cache.items()):
    if finder is None:
        del sys.path_importer_cache[path]  # a folder that was not there may be when the program starts
if zygote is not None:
    more = sources() if loaded else []
    watched, before = watched + more, before + stamp(more)
    try:
        forks = zygote.may_fork()
    except BaseException:
        forks = False
    if forks:
        modules = dict(sys.modules)
        del modules["__main__"]
        newest = list(modules)[-1]
        zygote.serve()
        rehearse()
        kept = modules
    else:
        zygote.control.detach()
        zygote.dumpable(1)
        gc.unfreeze()
        atexit.unregister(end)
        zygote = None
        os.write(FD, b"\n")
elif loaded or "SKERRY_FORKS" in os.environ:
    os.write(FD, b"\n")  # a program may be faster without it until here
wait()
