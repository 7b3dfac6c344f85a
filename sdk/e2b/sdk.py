"""E2B's own Python SDKs, as they are on PyPI, against a server with real containers: only the variables of test.sh point them there."""

import asyncio
import datetime
import os
import threading
import time
import unittest
import urllib.error
import urllib.request

from e2b import AsyncSandbox, CommandExitException, NotFoundException, PtySize, SandboxException, SandboxQuery, SandboxState, Template, TimeoutException
from e2b import Sandbox as Plain
from e2b_code_interpreter import Sandbox

# Several versions run side by side, and each looks for its own sandboxes.
MINE = f"1&2 {os.getpid()}"
# How a stream without data is kept up is the server's business alone: one version is enough for what takes that long.
QUIET = os.environ.get("SKERRY_E2B_QUIET")


def within(seconds, what):
    """The first true answer of what, asked again and again."""
    end = time.monotonic() + seconds
    while True:
        if got := what():
            return got
        if time.monotonic() > end:
            raise AssertionError(f"nothing within {seconds} s")
        time.sleep(0.1)


class SDK(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.box = Sandbox.create(timeout=600, metadata={"suite": "python", "a b": MINE}, envs={"GREETING": "moin"})
        cls.quiet = cls.box.commands.run("sleep 40; echo late", background=True, timeout=200) if QUIET else None

    @classmethod
    def tearDownClass(cls):
        cls.box.kill()

    def test_life(self):
        box = Plain.create(timeout=300, metadata={"life": MINE})
        self.assertTrue(box.is_running())
        info = box.get_info()
        self.assertEqual((info.sandbox_id, info.metadata, info.state.value), (box.sandbox_id, {"life": MINE}, "running"))
        box.set_timeout(900)
        self.assertGreater((box.get_info().end_at - info.end_at).total_seconds(), 500)
        found = Plain.list(query=SandboxQuery(metadata={"life": MINE})).next_items()
        self.assertEqual([s.sandbox_id for s in found], [box.sandbox_id])
        box.files.write("kept.txt", "kept")
        again = Plain.connect(box.sandbox_id)
        self.assertEqual(again.files.read("kept.txt"), "kept")
        self.assertTrue(again.kill())
        self.assertFalse(box.is_running())
        self.assertFalse(Plain.kill(box.sandbox_id))
        with self.assertRaises(NotFoundException):
            Plain.connect(box.sandbox_id)
        with self.assertRaises(SandboxException):
            box.commands.run("true")

    def test_metadata(self):
        found = Plain.list(query=SandboxQuery(metadata={"a b": MINE})).next_items()
        self.assertEqual([s.sandbox_id for s in found], [self.box.sandbox_id])

    def test_timeout(self):
        box = Plain.create(timeout=3)
        within(60, lambda: not box.is_running())

    def test_pause(self):
        box = Sandbox.create(timeout=300)
        self.addCleanup(box.kill)
        box.run_code("x = 41")
        box.files.write("before", "1")
        self.assertTrue(box.pause())
        self.assertFalse(box.is_running())
        self.assertFalse(box.pause())
        again = Sandbox.connect(box.sandbox_id, timeout=300)
        self.assertEqual(again.run_code("x + 1").text, "42")
        self.assertEqual(again.files.read("before"), "1")

    def test_pause_at_end(self):
        """connect() finds a sandbox that was paused at its end, and it stays up."""
        box = Sandbox.create(timeout=2, lifecycle={"on_timeout": "pause"})
        self.addCleanup(box.kill)
        for _ in range(3):
            within(60, lambda: not box.is_running())
            self.assertEqual(Sandbox.connect(box.sandbox_id, timeout=300).commands.run("echo up").stdout, "up\n")
            time.sleep(1)
            self.assertTrue(box.is_running())
            box.set_timeout(1)

    def test_killed(self):
        """What runs in a sandbox that is killed ends with the SDK's TimeoutException."""
        for run in (lambda box: box.run_code("import time; time.sleep(100)"), lambda box: box.commands.run("sleep 100")):
            box = Sandbox.create(timeout=300)
            killer = threading.Timer(2, box.kill)
            killer.start()
            with self.assertRaises(TimeoutException):
                run(box)
            killer.join()

    def test_list(self):
        boxes = [Plain.create(timeout=300, metadata={"list": MINE}, network={"allow_public_traffic": False}) for _ in range(3)]
        for box in boxes:
            self.addCleanup(box.kill)
        found, pages = [], Plain.list(query=SandboxQuery(metadata={"list": MINE}), limit=2)
        while pages.has_next:
            found += [s.sandbox_id for s in pages.next_items()]
        self.assertEqual(found, [box.sandbox_id for box in reversed(boxes)])
        boxes[0].pause()
        states = [SandboxQuery(metadata={"list": MINE}, state=[state]) for state in (SandboxState.PAUSED, SandboxState.RUNNING)]
        self.assertEqual([len(Plain.list(query=query).next_items()) for query in states], [1, 2])

    def test_signed_urls(self):
        """A URL that the SDK signs needs no key, and is of one file until its time is over."""
        self.box.files.write("signed here.txt", "signed")
        for path in "signed here.txt", "/home/user/signed here.txt":
            with urllib.request.urlopen(self.box.download_url(path, "user", 60)) as answer:
                self.assertEqual(answer.read(), b"signed")
        upload = urllib.request.Request(self.box.upload_url("sent.txt", "user", 60), b"sent", {"Content-Type": "application/octet-stream"})
        urllib.request.urlopen(upload).close()
        self.assertEqual(self.box.files.read("sent.txt"), "sent")
        good = self.box.download_url("signed here.txt", "user", 60)
        for bad in self.box.download_url("signed here.txt", "user", use_signature_expiration=-60), good.replace("signed%20here", "sent"):
            with self.assertRaises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(bad)
            self.assertEqual(refused.exception.code, 401)
            refused.exception.close()

    def test_metadata_of_files(self):
        self.box.files.write("described.txt", "x", metadata={"author": "me"})
        self.assertEqual(self.box.files.get_info("described.txt").metadata, {"author": "me"})
        read = "import os; print(os.getxattr('described.txt', 'user.e2b.author').decode()); os.setxattr('described.txt', 'user.e2b.seen', b'1')"
        self.assertEqual(self.box.commands.run(f'python3 -c "{read}"').stdout, "me\n")
        self.assertEqual(self.box.files.rename("described.txt", "moved.txt").metadata, {"author": "me", "seen": "1"})
        self.assertIsNone(self.box.files.write("moved.txt", "y").metadata)

    def test_metrics(self):
        self.box.files.write("weight.bin", b"x" * (1 << 20))
        one = self.box.get_metrics()[-1]
        self.assertGreater(one.mem_used, 1 << 20)
        self.assertGreaterEqual(one.disk_used, 1 << 20)
        self.assertTrue(one.mem_total > one.mem_used and one.disk_total > one.disk_used and 0 <= one.cpu_used_pct <= 100, one)
        old = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=1)
        self.assertEqual(self.box.get_metrics(end=old), [])

    def test_templates(self):
        self.assertTrue(Template.exists("code-interpreter-v1"))
        self.assertTrue(Template.exists("base"))
        self.assertFalse(Template.exists("no-such-template"))

    def test_env(self):
        """Values of the environment are in output as the program prints them."""
        self.assertEqual(self.box.commands.run("echo $LONG", envs={"LONG": "no-secret-at-all"}).stdout, "no-secret-at-all\n")

    def test_commands(self):
        run = self.box.commands.run
        got = run("echo $GREETING $HERE; pwd; echo oops >&2", envs={"HERE": "you"})
        self.assertEqual((got.stdout, got.stderr, got.exit_code), ("moin you\n/home/user\n", "oops\n", 0))
        with self.assertRaises(CommandExitException) as failed:
            run("echo no >&2; exit 7")
        self.assertEqual((failed.exception.exit_code, failed.exception.stderr), (7, "no\n"))
        with self.assertRaises(TimeoutException):
            run("sleep 60", timeout=2)
        pieces = []
        run("for i in 1 2 3; do echo $i; done", on_stdout=pieces.append)
        self.assertEqual("".join(pieces), "1\n2\n3\n")

    def test_background(self):
        handle = self.box.commands.run("cat; echo end", background=True, stdin=True)
        self.assertIn(handle.pid, [p.pid for p in self.box.commands.list()])
        self.box.commands.send_stdin(handle.pid, "typed\n")
        self.box.commands.close_stdin(handle.pid)
        self.assertEqual(handle.wait().stdout, "typed\nend\n")
        long = self.box.commands.run("sleep 300", background=True)
        other = self.box.commands.connect(long.pid)
        self.assertTrue(self.box.commands.kill(long.pid))
        for handle in (long, other):
            with self.assertRaises(CommandExitException):
                handle.wait()
        self.assertFalse(self.box.commands.kill(long.pid))

    def test_files(self):
        files = self.box.files
        files.write("f/a.txt", "text")
        files.write("f/b.bin", bytes(range(256)))
        self.assertEqual(files.read("f/a.txt"), "text")
        self.assertEqual(bytes(files.read("/home/user/f/b.bin", format="bytes")), bytes(range(256)))
        self.assertEqual(sorted(e.name for e in files.list("f")), ["a.txt", "b.bin"])
        self.assertTrue(files.exists("f/a.txt"))
        self.assertEqual(files.get_info("f/b.bin").size, 256)
        self.assertTrue(files.make_dir("f/new/deep"))
        self.assertFalse(files.make_dir("f/new/deep"))
        self.assertEqual(files.rename("f/a.txt", "f/c.txt").path, "/home/user/f/c.txt")
        files.remove("f")
        self.assertFalse(files.exists("f"))
        files.remove("f")
        files.write("d/t.txt", "four")
        self.box.commands.run("ln -s t.txt d/l.txt && ln -s ../d d/self")
        self.assertEqual(files.get_info("d/l.txt").symlink_target, "/home/user/d/t.txt")
        shown = {e.name: (e.type.value, e.size, e.symlink_target) for e in files.list("d")}
        top = "/home/user/d"
        self.assertEqual(shown, {"t.txt": ("file", 4, None), "l.txt": ("symlink", 4, top + "/t.txt"), "self": ("symlink", 4096, top)})
        with self.assertRaises(NotFoundException):
            files.read("f/a.txt")
        written = files.write_files([{"path": "m/1", "data": "one"}, {"path": "m/2", "data": b"two"}])
        self.assertEqual([w.path for w in written], ["/home/user/m/1", "/home/user/m/2"])
        self.assertEqual(self.box.commands.run("cat m/1 m/2").stdout, "onetwo")

    def test_places(self):
        """Files are at /home/user for programs, too; what else can be written is read, listed and watched."""
        files, run = self.box.files, self.box.commands.run
        info = files.write("/home/user/places/a.txt", "by the SDK")
        self.assertEqual(info.path, "/home/user/places/a.txt")
        self.assertEqual(run("cat /home/user/places/a.txt && pwd").stdout, "by the SDK/home/user\n")
        self.assertEqual(run("pwd", cwd="/home/user/places").stdout, "/home/user/places\n")
        run("mkdir -p /workspace && echo by a program > /workspace/places/b.txt")
        self.assertEqual(files.read("/home/user/places/b.txt"), "by a program\n")
        self.assertEqual([e.path for e in files.list("/home/user/places")], ["/home/user/places/a.txt", "/home/user/places/b.txt"])

        run("mkdir -p /tmp/places && printf 'of a program' > /tmp/places/c.txt && ln -sfn /tmp/places /tmp/link")
        self.assertEqual(files.read("/tmp/places/c.txt"), "of a program")
        self.assertEqual(files.read("/tmp/link/c.txt"), "of a program")
        handle, seen = files.watch_dir("/tmp/places"), []
        files.write("/tmp/places/deep/d.bin", bytes(range(256)) * 4096)
        self.assertEqual(run("sha256sum < /tmp/places/deep/d.bin | cut -c 1-8; stat -c %s /tmp/places/deep/d.bin").stdout.split()[1], str(1 << 20))
        self.assertEqual(bytes(files.read("/tmp/places/deep/d.bin", format="bytes")), bytes(range(256)) * 4096)
        self.assertEqual(sorted(e.name for e in files.list("/tmp/places", depth=2)), ["c.txt", "d.bin", "deep"])
        within(10, lambda: seen.extend(handle.get_new_events()) or any(e.name == "deep" for e in seen))
        handle.stop()
        files.rename("/tmp/places/c.txt", "/tmp/places/e.txt")
        files.make_dir("/tmp/places/made")
        files.remove("/tmp/places/deep")
        self.assertEqual(run("ls /tmp/places").stdout, "e.txt\nmade\n")
        self.assertFalse(files.exists("/tmp/places/c.txt"))
        for name in ("/etc/new", "/usr/bin/new"):
            with self.assertRaises(SandboxException):
                files.write(name, "not theirs")
        for name in ("/proc/1/environ", "/run/skerry/control.sock", "/dev/zero"):
            with self.assertRaises(SandboxException):
                files.read(name)

    def test_watch(self):
        self.box.files.make_dir("w")
        handle = self.box.files.watch_dir("w", include_entry=True)
        self.box.commands.run("echo x > w/new.txt")
        events = within(10, handle.get_new_events)
        self.assertEqual({e.name for e in events}, {"new.txt"})
        self.assertEqual({e.entry.size for e in events}, {2})
        handle.stop()

    def test_pty(self):
        out = []
        terminal = self.box.pty.create(PtySize(rows=30, cols=100), timeout=60)
        reader = threading.Thread(target=lambda: self.drain(terminal, out))
        reader.start()
        self.box.pty.resize(terminal.pid, PtySize(rows=40, cols=120))
        self.box.pty.send_stdin(terminal.pid, b"stty size; echo $((40 + 2)); exit\n")
        reader.join(60)
        self.assertFalse(reader.is_alive())
        shown = b"".join(out).decode()
        self.assertIn("40 120", shown)
        self.assertIn("42", shown)

    @staticmethod
    def drain(terminal, out):
        terminal.wait(on_pty=out.append)

    def test_code(self):
        got = self.box.run_code("print('out')\nimport sys; print('err', file=sys.stderr)\n6 * 7", on_stdout=lambda m: self.assertFalse(m.error))
        self.assertEqual((got.text, "".join(got.logs.stdout), "".join(got.logs.stderr), got.error), ("42", "out\n", "err\n", None))
        self.box.run_code("y = 5")
        self.assertEqual(self.box.run_code("y").text, "5")
        rich = self.box.run_code("from IPython.display import HTML, display\ndisplay(HTML('<b>x</b>'))\n'last'")
        self.assertEqual((rich.results[0].html, rich.text), ("<b>x</b>", "last"))
        failed = self.box.run_code("1/0")
        self.assertEqual((failed.error.name, failed.error.value), ("ZeroDivisionError", "division by zero"))
        self.assertIn("Traceback", failed.error.traceback)
        self.assertEqual(self.box.run_code("const z: number = 2; z + 1", language="ts").text, "3")
        self.assertEqual("".join(self.box.run_code("echo hi", language="bash").logs.stdout), "hi\n")
        with self.assertRaisesRegex(Exception, "501"):
            self.box.run_code("1", language="r")

    def test_contexts(self):
        one = self.box.create_code_context(language="python", cwd="/home/user")
        self.box.run_code("v = 'one'", context=one)
        self.assertEqual(self.box.run_code("v", context=one).text, "one")
        self.assertIsNotNone(self.box.run_code("v").error)
        self.assertIn(one.id, [c.id for c in self.box.list_code_contexts()])
        self.box.restart_code_context(one)
        self.assertEqual(self.box.run_code("v", context=one).error.name, "NameError")
        self.box.remove_code_context(one)
        self.assertNotIn(one.id, [c.id for c in self.box.list_code_contexts()])

    def test_code_timeout(self):
        """A client that leaves at its timeout leaves nothing behind: the next run finds the variables."""
        box = Sandbox.create(timeout=300)
        self.addCleanup(box.kill)
        box.run_code("x = 41")
        with self.assertRaises(TimeoutException):
            box.run_code("import time\nwhile True: time.sleep(0.1)", timeout=2)
        began = time.monotonic()
        self.assertEqual(box.run_code("x + 1").text, "42")
        self.assertLess(time.monotonic() - began, 30)
        with self.assertRaises(TimeoutException):
            box.run_code("import time\nwhile True:\n  try: time.sleep(0.1)\n  except KeyboardInterrupt: pass", timeout=2)
        self.assertEqual(box.run_code("6 * 7").text, "42")

    def test_refused(self):
        with self.assertRaisesRegex(SandboxException, "not supported: snapshots"):
            self.box.create_snapshot()
        with self.assertRaisesRegex(SandboxException, "not supported: user root"):
            self.box.commands.run("id", user="root")

    @unittest.skipUnless(QUIET, "with another version of the SDK")
    def test_zz_quiet(self):
        """A command that says nothing for longer than any deadline of a connection is followed to its end."""
        self.assertEqual(self.quiet.wait().stdout, "late\n")

    def test_async(self):
        async def main():
            box = await AsyncSandbox.create(timeout=300)
            try:
                both = await asyncio.gather(box.commands.run("echo 1"), box.commands.run("echo 2"))
                self.assertEqual([r.stdout for r in both], ["1\n", "2\n"])
                seen = asyncio.Queue()
                watch = await box.files.watch_dir("/home/user", on_event=seen.put_nowait)
                await box.files.write("n.txt", "x")
                self.assertEqual((await asyncio.wait_for(seen.get(), 30)).name, "n.txt")
                await watch.stop()
            finally:
                await box.kill()

        asyncio.run(main())


if __name__ == "__main__":
    unittest.main()
