"""Tests of the plugin data-analysis: python3 -m unittest discover plugins/tests"""

import sys
from pathlib import Path
from xml.etree import ElementTree

sys.path.append(str(Path(__file__).parent.parent.parent / "skills/tests"))

from on_files import PLUGINS, OnFiles  # noqa: E402

EXPLORE = PLUGINS / "data-analysis/skills/explore-table/scripts/explore.py"
DRAW = PLUGINS / "data-analysis/skills/svg-charts/scripts/draw.py"
SVG = "{http://www.w3.org/2000/svg}"


def orders(days=90, north=1000):
    rows = ["id,day,region,revenue,cost,note"]
    for i in range(days):
        for j, region in enumerate(("North", "South")):
            revenue = (north if region == "North" else 100) + i + j
            rows.append(f"{2 * i + j},2026-{1 + i // 30:02}-{1 + i % 28:02},{region},{revenue},{revenue * 0.5:.1f},")
    return "\n".join(rows) + "\n"


class Explore(OnFiles):
    def test_report(self):
        file = self.path("orders.csv", orders().replace("90,2026-02-18,North,1045,", "90,2026-02-18,North,99999,"))
        out = self.well(EXPLORE, file, "--target", "revenue", "--out", self.dir)
        for want in ("180 rows, 6 columns", "`region` explains", "| North | 90 |", "| revenue, cost | ", "Sum of `revenue` by month of `day`", "1 rows of `revenue` are far from the rest", "line 92: 99,999", "`note` is missing in 180 of 180 rows"):
            self.assertIn(want, out)
        self.assertNotIn("| id, ", out)
        made = sorted(p.name for p in self.dir.iterdir())
        self.assertEqual(made, ["orders.csv", "orders.explore.md", "orders.groups.svg", "orders.trend.svg"])
        self.assertEqual(len(ElementTree.parse(self.dir / "orders.groups.svg").findall(SVG + "rect")), 3)

    def test_chooses(self):
        out = self.well(EXPLORE, self.path("orders.csv", orders()), "--out", self.dir)
        self.assertIn("`region` explains", out)
        out = self.well(EXPLORE, self.path("w.csv", "a;b\nx;1,5\ny;z\n".encode("cp1252")), "--out", self.dir)
        self.assertIn("No column has figures that vary", out)

    def test_compare(self):
        old, new = self.path("a.csv", "id,x,gone\n1,10,a\n2,20,b\n3,30,c\n"), self.path("b.csv", "id,x,came\n2,25,\n3,30,\n9,40,\n")
        out = self.well(EXPLORE, old, "--against", new, "--key", "id")
        for want in ("Columns that went: gone", "Columns that came: came", "| x | 60 | 95 | +58.3% |", "1 rows went, 1 came, 1 changed", "Went: 1", "Came: 9", "Changed columns: x (1)"):
            self.assertIn(want, out)
        self.refused(EXPLORE, "stands there several times", self.path("a.csv", "id,x\n1,1\n1,2\n"), "--against", new, "--key", "id")

    def test_refused(self):
        file = self.path("orders.csv", orders())
        self.refused(EXPLORE, "did you mean 'revenue'?", file, "--target", "revenu")
        self.refused(EXPLORE, "has no figures that vary", file, "--target", "region")
        self.refused(EXPLORE, "no file", self.dir / "none.csv")
        self.refused(EXPLORE, "fewer than two rows", self.path("e.csv", "a,b\n1,2\n"))
        self.refused(EXPLORE, "columns: a table has", self.path("e.csv", ""))


class Draw(OnFiles):
    def draw(self, *args):
        text = self.well(DRAW, *args, "--out", self.dir / "o.svg")
        return text, ElementTree.parse(self.dir / "o.svg").getroot()

    def test_bars(self):
        file = self.path("a.csv", 'name,v\n<b>,"1,000"\nc,5\nc,6\nd,none\n')
        text, svg = self.draw("bar", file, "--x", "name", "--y", "v", "--title", "A & B")
        self.assertIn("3 of 4 rows; 1 without a figure left out", text)
        bars = svg.findall(SVG + "rect")[1:]
        self.assertEqual([bar.find(SVG + "title").text for bar in bars], ["<b>: 1000", "c: 11"])
        self.assertAlmostEqual(float(bars[0].get("height")) / float(bars[1].get("height")), 1000 / 11, delta=2)
        self.assertIn("A & B", [t.text for t in svg.iter(SVG + "text")])
        _, svg = self.draw("bar", self.path("m.csv", "a\n" + "".join(f"v{i}\n" for i in range(30))), "--x", "a", "--agg", "count", "--top", "5")
        self.assertEqual(svg.findall(SVG + "rect")[-1].find(SVG + "title").text, "other (25): 25")

    def test_others(self):
        file = self.path("o.csv", orders())
        _, svg = self.draw("line", file, "--x", "day", "--y", "revenue", "--by", "region")
        self.assertEqual(len(svg.findall(SVG + "polyline")), 2)
        self.assertIn("2026-01-01", [t.text for t in svg.iter(SVG + "text")])
        _, svg = self.draw("scatter", file, "--x", "cost", "--y", "revenue")
        self.assertEqual(len(svg.findall(SVG + "circle")), 180)
        self.draw("hist", file, "--y", "revenue")
        self.draw("hist", self.path("c.csv", "v\n7\n7\n"), "--y", "v")
        self.draw("bar", self.path("n.csv", "a,v\nx,-5\ny,3\n"), "--x", "a", "--y", "v")

    def test_refused(self):
        file = self.path("o.csv", orders())
        self.refused(DRAW, "did you mean 'revenue'?", "bar", file, "--x", "region", "--y", "revenu")
        self.refused(DRAW, "has no figures", "bar", file, "--x", "region", "--y", "note")
        self.refused(DRAW, "needs --x and --y", "line", file, "--y", "revenue")
        self.refused(DRAW, "more than 8 values", "line", file, "--x", "cost", "--y", "revenue", "--by", "id")
        self.refused(DRAW, "has no rows", "hist", self.path("e.csv", "a,b\n"), "--y", "a")
