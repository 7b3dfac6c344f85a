"""Tests of the skill spreadsheets, in the template office: python3 -m unittest discover skills/tests"""

import datetime
import shutil
import unittest

from on_files import SKILLS, OnFiles, needs

LOOK, BUILD, RECALC = (SKILLS / "spreadsheets/scripts" / name for name in ("look.py", "build.py", "recalc.py"))


@needs("openpyxl")
class Build(OnFiles):
    def test_types(self):
        import openpyxl

        sales = self.path("sales.csv", "month;amount;code;when;paid;note\nJan;1,200.50;007;2026-01-31;yes;=1+1\nFeb;-3;12345678901234567890;2026-02-30;no;\n")
        costs = self.path("costs: plan.csv", "month,amount\nJan,7\n")
        out = self.dir / "o.xlsx"
        self.well(BUILD, sales, costs, "--out", out, "--total", "amount", "--format", "amount=#,##0.00", "--chart", "sales:month:amount")
        book = openpyxl.load_workbook(out)
        self.assertEqual(book.sheetnames, ["sales", "costs  plan"])
        sheet = book["sales"]
        self.assertEqual([c.value for c in sheet[2]], ["Jan", 1200.5, "007", datetime.datetime(2026, 1, 31), True, "=1+1"])
        self.assertEqual([c.value for c in sheet[3]], ["Feb", -3, "12345678901234567890", "2026-02-30", False, None])
        self.assertEqual((sheet["F2"].data_type, sheet["B4"].value, sheet["B4"].data_type, sheet["A4"].value), ("s", "=SUM(B2:B3)", "f", "Total"))
        self.assertEqual((sheet["B2"].number_format, sheet.freeze_panes, sheet.auto_filter.ref, len(sheet._charts)), ("#,##0.00", "A2", "A1:F3", 1))

    def test_refused(self):
        file = self.path("a.csv", "x,y\n1,2\n")
        self.refused(BUILD, "no file has a column 'z'; there are: x, y", file, "--total", "z")
        self.refused(BUILD, "SHEET:X:Y", file, "--chart", "a:x", "--out", self.dir / "o.xlsx")
        self.refused(BUILD, "no column 'z'", file, "--chart", "a:x:z", "--out", self.dir / "o.xlsx")
        self.refused(BUILD, "is empty", self.path("b.csv", ""), "--out", self.dir / "o.xlsx")
        self.refused(BUILD, "no file", self.dir / "none.csv")


@needs("openpyxl")
class Look(OnFiles):
    def test_workbook(self):
        import openpyxl

        book = openpyxl.Workbook()
        sheet = book.active
        sheet.title = "Plan"
        sheet.append(["Budget of 2026"])
        sheet.append(["item", "each", "count", "total"])
        for row in range(3, 8):
            sheet.append([f"item {row}", row, 2, f"=B{row}*C{row}" if row != 5 else "=B5*3"])
        sheet["B8"] = "#REF!"
        sheet["B8"].data_type = "e"
        sheet.merge_cells("A1:D1")
        book.create_sheet("Hidden").sheet_state = "hidden"
        book.save(self.dir / "b.xlsx")
        out = self.well(LOOK, self.dir / "b.xlsx", "--rows", "1", "--csv", "--out", self.dir)
        for want in ("2 sheets: Plan, Hidden", "header in row 2", "| B | each | number 5, text 1", "formulas differ in D5", "5 formulas", "1 errors: B8 #REF!", "merged: A1:D1", "## Hidden, hidden", "item 3\t3\t2"):
            self.assertIn(want, out)
        self.assertIn("item 3,3,2", (self.dir / "b-Plan.csv").read_text())

    def test_refused(self):
        self.refused(LOOK, "not an Excel workbook", self.path("a.xlsx", "no zip"))
        self.refused(LOOK, "convert it first", self.path("a.xls", b"\xd0\xcf\x11\xe0"))


@needs("openpyxl")
@unittest.skipUnless(shutil.which("soffice"), "LibreOffice is not here")
class Recalc(OnFiles):
    def test_values_and_errors(self):
        import openpyxl

        book = openpyxl.Workbook()
        sheet = book.active
        sheet.append([1, 2, "=A1+B1"])
        sheet.append([1, 0, "=A2/B2"])
        book.save(self.dir / "b.xlsx")
        code, out, _ = self.run_script(RECALC, self.dir / "b.xlsx")
        self.assertEqual(code, 1)
        self.assertIn("2 formulas, 1 errors", out)
        self.assertIn("Sheet!C2: #DIV/0!  =A2/B2", out)
        self.assertEqual(openpyxl.load_workbook(self.dir / "b-values.xlsx", data_only=True).active["C1"].value, 3)
        sheet["B2"] = 4
        book.save(self.dir / "b.xlsx")
        self.assertIn("2 formulas, 0 errors", self.well(RECALC, self.dir / "b.xlsx"))
