"""Tests of the skill csv-profile: python3 -m unittest discover skills/tests"""

import importlib.util
import io
import json
import tempfile
import unittest
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from on_files import SKILLS

SCRIPT = SKILLS / "csv-profile/scripts/profile.py"
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

    def test_delimiter_of_odd_files(self):
        for data, delimiter in (
            (b"name\nAnn, Lee\nBob\nCarl\n", ","),
            (b"a;b\n1,5;2\n2,5;3\n", ";"),
            (b'a,b\n"x;y;z",1\n"p;q;r",2\n', ","),
            (b"a|b|c\n1|2|3\n", "|"),
            (b"a,b,c\n", ","),
        ):
            _, result, _, _ = self.run_on(data)
            self.assertEqual(result["delimiter"], delimiter, data)
        # A file that csv.Sniffer needs seconds for.
        _, result, _, _ = self.run_on(b"a,b\n" + b'"x""y,' * 9000 + b"\n")
        self.assertEqual(result["delimiter"], ",")

    def test_numbers_and_codes(self):
        _, result, written, _ = self.run_on(b"zip,eur,big,sci,under,dots\n00501,\"1,234.50\",12345678901234567890,1e3,1_000,1.2.3\n10001,-2,1,2E-2,1_000,1.2.4\n")
        columns = {c["name"]: c for c in result["columns"]}
        self.assertEqual([c["type"] for c in result["columns"]], ["text", "number", "integer", "number", "text", "text"])
        self.assertNotIn("mean", columns["zip"])
        self.assertEqual((columns["eur"]["max"], columns["eur"]["min"]), (1234.5, -2.0))
        self.assertIn("leading zeros", written[".md"])

    def test_one_name_two_endings(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("a.csv", "a.tsv"):
                Path(folder, name).write_text("x\n1\n")
            with redirect_stdout(io.StringIO()):
                code = csv_profile.main([str(Path(folder, "a.csv")), str(Path(folder, "a.tsv")), "--out", folder])
            made = sorted(p.name for p in Path(folder).glob("*.json"))
        self.assertEqual((code, made), (0, ["a.profile.json", "a.tsv.profile.json"]))

    def test_ragged_and_mixed(self):
        _, result, _, _ = self.run_on(b"a,b\n1\n2,x,3\nfoo,7\n")
        self.assertEqual(result["ragged_rows"], 2)
        self.assertEqual(result["columns"][0]["type"], "mixed")

    def test_html_is_escaped(self):
        _, _, written, _ = self.run_on(b"<script>,b\n<img src=x>,1\n")
        self.assertNotIn("<script", written[".html"])
        self.assertNotIn("<img", written[".html"])

    def test_bad_input(self):
        code, _, _, err = self.run_on(b"")
        self.assertEqual(code, 2)
        self.assertIn("is empty", err)
        code, _, _, err = self.run_on(b"a,b\n1," + b"x" * (17 << 20) + b"\n")
        self.assertEqual(code, 2)
        self.assertIn("field larger than", err)
        with redirect_stderr(io.StringIO()) as err:
            self.assertEqual(csv_profile.main(["/nowhere/x.csv"]), 2)
        self.assertIn("x.csv: ", err.getvalue())


if __name__ == "__main__":
    unittest.main()
