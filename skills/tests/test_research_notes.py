"""Tests of the skill research-notes: python3 -m unittest discover skills/tests"""

from on_files import SKILLS, OnFiles

NOTES = SKILLS / "research-notes/scripts/notes.py"


class Notes(OnFiles):
    def notes(self, *args):
        return self.well(NOTES, "--notes", self.dir / "n", *args)

    def no(self, text, *args):
        self.refused(NOTES, text, "--notes", self.dir / "n", *args)

    def checked(self):
        return self.run_script(NOTES, "--notes", self.dir / "n", "check")[:2]

    def test_research(self):
        one = self.path("one.txt", "In 2025 reve-\nnues \u201crose\u201d by 12 per\u00a0cent,\nthe board said.")
        two = self.path("two.txt", "Analysts doubt it: revenues fell, by their count.")
        self.assertIn("S1: Annual report", self.notes("source", one, "--title", "Annual report", "--url", "https://example.org/a", "--date", "2026-02-11"))
        self.assertIn("it is there already", self.notes("source", self.path("copy.txt", one.read_bytes()), "--title", "Copy"))
        self.notes("source", two, "--title", "Analysts")
        self.notes("question", "Who said so?")
        self.notes("claim", "Revenue grew by 12 %", "--question", "How did revenue develop?", "--source", "s1", "--quote", 'Revenues "rose" by 12 per cent')
        code, out = self.checked()
        self.assertEqual((code, out.splitlines()), (1, ["C1 has one source only, S1", "Q1 has no claim: Who said so?", "S2 is not used: Analysts"]))
        self.notes("claim", "Revenue grew by 12 %", "--source", "S2", "--quote", "revenues fell", "--against")
        self.notes("drop", "Q1")
        self.assertEqual(self.checked(), (1, "C1 is contested: S1 for, S2 against\n"))
        report = self.notes("report", "--title", "Acme")
        for want in ("# Acme", "## How did revenue develop?", "- Revenue grew by 12 % [S1] (contested by S2)", "- [S1] Annual report, 2026-02-11, <https://example.org/a>", "against, S2: \u201crevenues fell\u201d"):
            self.assertIn(want, report)
        one.write_text("changed")
        self.assertIn("S1 has changed", self.checked()[1])
        self.no("claims refer to S1", "drop", "S1")

    def test_quotes_are_checked(self):
        self.notes("source", self.path("s.txt", "The river is 40 km long and flows north."), "--title", "T")
        self.no("it has the beginning 'the river is 40 km'", "claim", "c", "--source", "S1", "--quote", "The river is 40 km wide")
        self.no("does not stand", "claim", "c", "--source", "S1", "--quote", "something else entirely")
        self.no("proves nothing", "claim", "c", "--source", "S1", "--quote", "river")
        self.no("there is no note S9", "claim", "c", "--source", "S9", "--quote", "The river is 40 km")

    def test_refused(self):
        self.no("not text in UTF-8", "source", self.path("x.pdf", b"%PDF\xff\xfe"), "--title", "T")
        self.no("no claim yet", "report", "--title", "T")
        self.path("n/notes.jsonl", '{"kind": "source"}\n')
        self.no("line 1 is not a note", "list")
