import ctypes, os, resource, signal, socket, sys, threading, time

name, enough, bounded = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "bounded"
kept = []


def told(n):
    print("reached", n, flush=True)


def wait():
    if not bounded:
        while True:
            time.sleep(60)


def grow(step, tell=1):
    """Does step until it is refused or enough; for ever, if nothing ends it."""
    n = 0
    while n < enough or not bounded:
        try:
            n += step()
            if n % tell < 1 or n >= enough:
                told(n)
                tell = max(tell, n // 20)
        except (OSError, MemoryError, RuntimeError):
            told(n)
            if bounded:
                return
            time.sleep(0.001)


def fork():
    if os.fork() == 0:
        while bounded:
            time.sleep(60)
        while True:
            try:
                os.fork()
            except OSError:
                pass
    return 1


def thread():
    threading.Thread(target=time.sleep, args=(5 if bounded else 600,), daemon=True).start()
    return 1


def memory():
    kept.append(bytearray(b"x") * (1 << 20))
    return 1


def filler(path):
    parts = iter(range(1 << 30))

    def step():
        with open("%s/full%d" % (path, next(parts)), "wb", buffering=0) as f:
            if f.write(b"x" * (1 << 20)) != 1 << 20:
                raise OSError
        return 1

    return step


def buffers():
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    kept.extend((a, b))
    size = 0
    for s in (a, b):
        s.setblocking(False)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
        try:
            while True:
                size += s.send(b"x" * (1 << 16))
        except BlockingIOError:
            pass
    return size / (1 << 20)


def inode():
    for _ in range(100):
        os.close(os.open("/tmp/i%d" % len(kept), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        kept.append(0)
    return 100


def fd():
    kept.append(os.open("/dev/null", os.O_RDONLY))
    return 1


libc = ctypes.CDLL(None, use_errno=True)


def timer():
    t = ctypes.c_void_p()
    for _ in range(100):
        if libc.timer_create(1, None, ctypes.byref(t)):
            raise OSError
        libc.timer_settime(t, 0, (ctypes.c_long * 4)(0, 1000, 0, 1000), None)
    return 100


def cpu():
    began = time.monotonic()
    pids = []
    for _ in range(64):
        pid = os.fork()
        if pid == 0:
            while not bounded or time.monotonic() - began < 1.5:
                pass
            os._exit(0)
        pids.append(pid)
    time.sleep(1.4)
    if bounded:
        for pid in pids:
            os.waitpid(pid, 0)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        told(int(100 * (used.ru_utime + used.ru_stime) / (time.monotonic() - began)))
        return
    wait()


def daemons():
    for _ in range(enough):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                for s in range(1, 32):
                    if s not in (signal.SIGKILL, signal.SIGSTOP):
                        signal.signal(s, signal.SIG_IGN)
                if os.fork() == 0:
                    os._exit(0)  # a zombie
                os.close(1)
                os.close(2)
                time.sleep(600)
            os._exit(0)
    time.sleep(0.3)
    told(enough)


def stop():
    for pid in (os.getppid(), 1, -os.getppid()):
        try:
            os.kill(pid, signal.SIGSTOP)
        except OSError:
            pass
    for pid in os.listdir("/proc"):
        if pid.isdigit() and int(pid) != os.getpid():
            try:
                os.kill(int(pid), signal.SIGSTOP)
            except OSError:
                pass
    told(1)
    time.sleep(600)


def output():
    block = b"0123456789abcde\n" * (1 << 16)
    for _ in range(enough) if bounded else iter(int, 1):
        os.write(1, block)
        os.write(2, block[:4096])


if name == "bomb-timers":
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
{
    "bomb-fork": lambda: grow(fork, 10), "bomb-threads": lambda: grow(thread, 10), "bomb-daemons": daemons, "bomb-stop": stop,
    "bomb-memory": lambda: grow(memory, 10), "bomb-shm": lambda: grow(filler("/dev/shm"), 10), "bomb-buffers": lambda: grow(buffers, 1),
    "bomb-tmp": lambda: grow(filler("/tmp"), 10), "bomb-inodes": lambda: grow(inode, 1000), "bomb-fds": lambda: grow(fd, 100),
    "bomb-cpu": cpu, "bomb-timers": lambda: grow(timer, 1000), "bomb-output": output,
}[name]()
