"""Tests of the skill charts, in the template data: python3 -m unittest discover skills/tests"""

from on_files import SKILLS, OnFiles, needs

CHART = SKILLS / "charts/scripts/chart.py"
SALES = "month,region,revenue,units\n" + "".join(f"2026-{m:02}-1{d},{r},{m * 10 + i},{d}\n" for m in range(1, 7) for d in (1, 5) for i, r in enumerate(("North", "South", "West")))


@needs("matplotlib", "pandas")
class Charts(OnFiles):
    def draw(self, *args, name="out.png"):
        out = self.dir / name
        text = self.well(CHART, *args, "--out", out)
        return text, out.read_bytes()

    def test_kinds(self):
        file = self.path("sales.csv", SALES)
        for args in (
            ("bar", "--x", "region", "--y", "revenue", "--sort"),
            ("barh", "--x", "region", "--y", "revenue", "--agg", "mean"),
            ("stacked", "--x", "month", "--y", "revenue", "--by", "region", "--per", "month"),
            ("line", "--x", "month", "--y", "revenue,units", "--per", "month", "--log"),
            ("area", "--x", "month", "--y", "revenue", "--by", "region", "--per", "month"),
            ("scatter", "--x", "units", "--y", "revenue", "--by", "region"),
            ("hist", "--y", "revenue"),
            ("box", "--y", "revenue", "--x", "region"),
            ("heatmap", "--x", "month", "--by", "region", "--y", "revenue", "--per", "month"),
            ("bar", "--x", "region", "--agg", "count"),
        ):
            with self.subTest(args):
                text, picture = self.draw(args[0], file, *args[1:], "--title", "T", "--unit", "€")
                self.assertEqual(picture[:4], b"\x89PNG")
                self.assertGreater(len(picture), 5000)
                self.assertIn("36 of 36 rows", text)

    def test_numbers(self):
        file = self.path("a.csv", 'name,value\na,"1,000"\nb,$5\nc,none\nd,\n')
        text, svg = self.draw("bar", file, "--x", "name", "--y", "value", "--format", "svg", name="o.svg")
        self.assertIn("2 of 4 rows; 2 left out", text)
        self.assertIn(b"<svg", svg)

    def test_other_files(self):
        import pandas

        table = pandas.DataFrame({"a": ["x", "y"], "b": [1, 2]})
        table.to_json(self.dir / "t.json", orient="records")
        names = ["t.json"]
        for name, write in (("t.xlsx", table.to_excel), ("t.parquet", table.to_parquet)):
            try:
                write(self.dir / name, index=False)
                names.append(name)
            except ImportError:
                pass
        for name in names:
            self.assertIn("2 of 2 rows", self.draw("bar", self.dir / name, "--x", "a", "--y", "b")[0])

    def test_refused(self):
        file = self.path("sales.csv", SALES)
        self.refused(CHART, "did you mean 'revenue'?", "bar", file, "--x", "region", "--y", "revenu")
        self.refused(CHART, "no numbers", "bar", file, "--x", "month", "--y", "region")
        self.refused(CHART, "no rows are left", "bar", file, "--x", "region", "--y", "revenue", "--where", "units > 99")
        self.refused(CHART, "--where", "bar", file, "--x", "region", "--y", "revenue", "--where", "units >")
        self.refused(CHART, "needs --x and --y", "bar", file, "--x", "region")
        self.refused(CHART, "it reads", "bar", self.path("a.exe", "x"), "--x", "a", "--y", "b")
        many = self.path("m.csv", "a,b\n" + "".join(f"v{i},1\n" for i in range(80)))
        self.refused(CHART, "use --top", "bar", many, "--x", "a", "--y", "b")
        self.draw("bar", many, "--x", "a", "--y", "b", "--top", "10")
