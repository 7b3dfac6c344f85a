"""Tests of the skill pdf, in the template office: python3 -m unittest discover skills/tests"""

import json
import shutil
import unittest

from on_files import SKILLS, OnFiles, needs

PDF = SKILLS / "pdf/scripts/pdf.py"


@needs("pypdf", "pdfplumber", "reportlab")
@unittest.skipUnless(shutil.which("pdftotext"), "poppler is not here")
class Files(OnFiles):
    def make(self, name="a.pdf", pages=("first page of text here", "second page of text here", "third page of text here"), draw=None):
        from reportlab.pdfgen import canvas

        made = canvas.Canvas(str(self.dir / name))
        for text in pages:
            made.drawString(72, 700, text)
            if draw:
                draw(made)
            made.showPage()
        made.save()
        return self.dir / name

    def test_info_and_text(self):
        file = self.make()
        self.assertIn("a.pdf: 3 pages, the first 595 x 842 pt", self.well(PDF, "info", file))
        out = self.well(PDF, "text", file, "--pages", "3,1-2", "--out", self.dir / "a.txt")
        self.assertLess(out.index("third page"), out.index("first page"))
        self.assertIn("--- page 2 ---", (self.dir / "a.txt").read_text())

    def test_pages_and_merge(self):
        import pypdf

        file = self.make()
        self.well(PDF, "pages", file, "3,1", "--rotate", "90", "--out", self.dir / "p.pdf")
        made = pypdf.PdfReader(self.dir / "p.pdf")
        self.assertEqual([p.extract_text().split()[0] for p in made.pages], ["third", "first"])
        self.assertEqual(made.pages[0].rotation, 90)
        self.assertIn("5 pages of 2 files", self.well(PDF, "merge", file, self.dir / "p.pdf", "--out", self.dir / "m.pdf"))

    def test_tables(self):
        from reportlab.platypus import SimpleDocTemplate, Table

        table = Table([["item", "price"], ["Hosting", "100.00"], ["Mail", "20.50"]], style=[("GRID", (0, 0), (-1, -1), 1, "black")])
        SimpleDocTemplate(str(self.dir / "t.pdf")).build([table])
        self.assertIn("page 1, 3 rows, 2 columns", self.well(PDF, "tables", self.dir / "t.pdf", "--out", self.dir))
        self.assertEqual((self.dir / "t-p1-1.csv").read_text().split(), ["item,price", "Hosting,100.00", "Mail,20.50"])

    @unittest.skipUnless(shutil.which("tesseract"), "tesseract is not here")
    def test_scan(self):
        from PIL import Image, ImageDraw, ImageFont

        picture = Image.new("RGB", (1200, 400), "white")
        font = ImageFont.load_default(size=64)
        ImageDraw.Draw(picture).text((60, 150), "A scanned sentence", fill="black", font=font)
        picture.save(self.dir / "scan.pdf", resolution=150)
        self.assertIn("pages that are pictures (read them with text --ocr): 1", self.well(PDF, "info", self.dir / "scan.pdf"))
        out = self.well(PDF, "text", self.dir / "scan.pdf", "--ocr", "--out", self.dir / "s.txt")
        self.assertIn("scanned sentence", out)
        self.assertIn("1 by OCR", out)

    def test_form(self):
        import pypdf

        def form(made):
            made.acroForm.textfield(name="name", x=72, y=600, width=200)
            made.acroForm.checkbox(name="agree", x=72, y=560)
            made.acroForm.choice(name="size", x=72, y=520, value="small", options=["small", "large"])

        file = self.make("form.pdf", ("A form",), form)
        self.assertIn("form fields: 3", self.well(PDF, "info", file))
        fields = self.well(PDF, "fields", file)
        self.assertIn("name\ttext\t", fields)
        self.assertIn("small | large", fields)
        values = self.path("v.json", json.dumps({"name": "Ada", "agree": "/Yes", "size": "large"}))
        self.well(PDF, "fill", file, values, "--out", self.dir / "o.pdf")
        made = pypdf.PdfReader(self.dir / "o.pdf").get_fields()
        self.assertEqual((made["name"]["/V"], made["agree"]["/V"], made["size"]["/V"]), ("Ada", "/Yes", "large"))
        self.refused(PDF, "no field 'nobody'", "fill", file, self.path("v.json", '{"nobody": "x"}'))
        self.refused(PDF, "takes one of", "fill", file, self.path("v.json", '{"size": "huge"}'))
        self.refused(PDF, "no form fields", "fields", self.make())

    def test_encrypted(self):
        import pypdf

        writer = pypdf.PdfWriter(clone_from=self.make())
        writer.encrypt("secret", algorithm="RC4-128")
        writer.write(self.dir / "e.pdf")
        self.refused(PDF, "is encrypted", "text", self.dir / "e.pdf")
        self.assertIn("first page", self.well(PDF, "text", self.dir / "e.pdf", "--password", "secret", "--out", self.dir / "e.txt"))

    def test_refused(self):
        file = self.make()
        self.refused(PDF, "not a PDF", "info", self.path("x.pdf", "text"))
        self.refused(PDF, "no file", "info", self.dir / "none.pdf")
        self.refused(PDF, "pages 1 to 3", "text", file, "--pages", "4")
        self.refused(PDF, "write them as", "text", file, "--pages", "one")
        self.refused(PDF, "choose another name", "pages", file, "1", "--out", file)
