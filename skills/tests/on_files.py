"""What the tests of skills share. They run on this machine, and in a sandbox of the template that a skill is for."""

import contextlib
import importlib.util
import io
import os
import sys
import tempfile
import unittest
from pathlib import Path

# In a sandbox, the tests are beside nothing: the skills are where agents find them.
SKILLS = Path(os.environ.get("SKILLS") or Path(__file__).parent.parent / "public")
PLUGINS = Path(os.environ.get("PLUGINS") or Path(__file__).parent.parent.parent / "plugins/installed")


def needs(*modules):
    """Skips a test where a module is missing: SKILLS_WHOLE=1 says that none may be."""
    missing = [m for m in modules if importlib.util.find_spec(m) is None]
    return unittest.skipIf(missing and not os.environ.get("SKILLS_WHOLE"), "not here: " + ", ".join(missing))


class OnFiles(unittest.TestCase):
    """Runs the main function of scripts in a folder of files that goes afterwards."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)

    def path(self, name, data=None):
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if data is not None:
            path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    def run_script(self, script, *args):
        """Returns the exit code, what it prints, and its errors."""
        spec = importlib.util.spec_from_file_location("script_" + script.stem, script)
        module = importlib.util.module_from_spec(spec)
        sys.dont_write_bytecode = True
        spec.loader.exec_module(module)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = module.main([str(a) for a in args])
            except SystemExit as end:  # of argparse
                code = end.code
        return code, out.getvalue(), err.getvalue()

    def well(self, script, *args):
        code, out, err = self.run_script(script, *args)
        self.assertEqual((code, err), (0, ""), out)
        return out

    def refused(self, script, text, *args):
        code, out, err = self.run_script(script, *args)
        self.assertEqual(code, 2, out + err)
        self.assertIn(text, err)
        self.assertNotIn("Traceback", err)
