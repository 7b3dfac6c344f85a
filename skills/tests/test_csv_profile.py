"""Tests of the skill csv-profile: python3 -m unittest discover skills/tests"""

import importlib.util
import io
import json
import tempfile
import unittest
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

SCRIPT = Path(__file__).parent.parent / "public/csv-profile/scripts/profile.py"
spec = importlib.util.spec_from_file_location("csv_profile", SCRIPT)
csv_profile = importlib.util.module_from_spec(spec)
spec.loader.exec_module(csv_profile)


class CSVProfile(unittest.TestCase):
    def run_on(self, data, name="t.csv"):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            path.write_bytes(data)
            out, err = io.StringIO(), io.StringIO()
            with redirect_stdout(out), redirect_stderr(err):
                code = csv_profile.main([str(path), "--out", folder])
            written = {p.suffix: p.read_text("utf-8") for p in Path(folder).glob("*.profile.*")}
        result = json.loads(written[".json"]) if ".json" in written else None
        return code, result, written, err.getvalue()

    def test_types_and_figures(self):
        code, result, written, _ = self.run_on(b"id,x,when,flag,name\n1,1.5,2024-01-31,yes,a\n2,2.5,2024-02-01,no,b\n3,,2024-03-01,yes,a\n")
        self.assertEqual(code, 0)
        columns = {c["name"]: c for c in result["columns"]}
        self.assertEqual([c["type"] for c in result["columns"]], ["integer", "number", "date", "boolean", "text"])
        self.assertEqual((columns["x"]["missing"], columns["x"]["mean"], columns["x"]["max"]), (1, 2.0, 2.5))
        self.assertEqual(columns["name"]["top"][0], {"value": "a", "count": 2})
        self.assertIn("identifier", written[".md"])

    def test_delimiters_and_encodings(self):
        for data, delimiter, encoding in (
            ("a;b\nä;1\nö;2\n".encode("cp1252"), ";", "cp1252"),
            ("\ufeffa\tb\nä\t1\n".encode("utf-8"), "\t", "utf-8-sig"),
            ("a,b\nä,1\n".encode("utf-16"), ",", "utf-16"),
        ):
            code, result, _, _ = self.run_on(data)
            self.assertEqual((code, result["delimiter"], result["encoding"], result["rows"]), (0, delimiter, encoding, len(data.splitlines()) - 1 if encoding != "utf-16" else 1))
            self.assertEqual([c["name"] for c in result["columns"]], ["a", "b"])

    def test_ragged_and_mixed(self):
        _, result, _, _ = self.run_on(b"a,b\n1\n2,x,3\nfoo,7\n")
        self.assertEqual(result["ragged_rows"], 2)
        self.assertEqual(result["columns"][0]["type"], "mixed")

    def test_html_is_escaped(self):
        _, _, written, _ = self.run_on(b"<script>,b\n<img src=x>,1\n")
        self.assertNotIn("<script>", written[".html"].replace("<script>alert", ""))
        self.assertNotIn("<img", written[".html"])

    def test_bad_input(self):
        code, _, _, err = self.run_on(b"")
        self.assertEqual(code, 2)
        self.assertIn("is empty", err)


if __name__ == "__main__":
    unittest.main()
