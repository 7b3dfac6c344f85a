"""Tests of the skill documents, in the template office: python3 -m unittest discover skills/tests"""

import json
import shutil
import zipfile

from on_files import SKILLS, OnFiles, needs

MAKE, FILL, RENDER = (SKILLS / "documents/scripts" / name for name in ("make.py", "fill.py", "render.py"))
HERE = needs("docx") if shutil.which("pandoc") else needs("no_pandoc")


@HERE
class Make(OnFiles):
    def test_document(self):
        import docx

        source = self.path("a.md", "# One\n\nText with **bold**.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n# Two\n\n- x\n- y\n")
        out = self.dir / "a.docx"
        self.well(MAKE, source, "--out", out, "--title", "Report", "--toc")
        made = docx.Document(str(out))
        texts = [p.text for p in made.paragraphs]
        self.assertEqual(texts[0], "Report")
        self.assertIn("Text with bold.", texts)
        self.assertEqual((made.core_properties.title, made.tables[0].cell(1, 1).text), ("Report", "2"))
        xml = zipfile.ZipFile(out).read("word/document.xml").decode()
        self.assertIn("w:tblBorders", xml)
        self.assertIn("w:tblHeader", xml)
        self.assertEqual(round(made.sections[0].page_width.mm), 210)
        self.assertIn("PAGE", made.sections[0].footer._element.xml)

    def test_like(self):
        import docx
        from docx.shared import Mm

        like = docx.Document()
        like.sections[0].page_width = Mm(150)
        like.save(str(self.dir / "like.docx"))
        self.well(MAKE, self.path("a.md", "text"), "--like", self.dir / "like.docx", "--out", self.dir / "b.docx")
        self.assertEqual(round(docx.Document(str(self.dir / "b.docx")).sections[0].page_width.mm), 150)

    def test_refused(self):
        self.refused(MAKE, "no file", self.dir / "none.md")
        self.refused(MAKE, "end with .docx", self.path("a.md", "x"), "--out", self.dir / "a.txt")
        self.refused(MAKE, "pandoc", self.path("a.md", "x"), "--out", self.dir / "a.docx", "--like", self.path("like.docx", "no zip"))


@HERE
class Fill(OnFiles):
    def template(self):
        import docx

        made = docx.Document()
        paragraph = made.add_paragraph("Dear {{cl")
        paragraph.add_run("ient}}, you owe ").bold = True
        paragraph.add_run("{{ total }} by {{date}}.")
        table = made.add_table(rows=2, cols=2)
        table.cell(0, 0).text = "item"
        table.cell(1, 0).text, table.cell(1, 1).text = "{{items.name}}", "{{items.price}}"
        made.sections[0].footer.paragraphs[0].text = "{{client}}"
        made.save(str(self.dir / "t.docx"))
        return self.dir / "t.docx"

    def test_fill(self):
        import docx

        template = self.template()
        listed = self.well(FILL, template, "--list")
        self.assertEqual(sorted(listed.split()), sorted("client 2 date 1 total 1 items.name 1 items.price 1".split()))
        values = {"client": "Acme & <Sons>", "total": 120.5, "date": "1 May", "spare": 1, "items": [{"name": "Hosting", "price": "100"}, {"name": "Mail", "price": "20.50"}]}
        out = self.well(FILL, template, self.path("v.json", json.dumps(values)), "--out", self.dir / "o.docx")
        self.assertIn("not used: spare", out)
        made = docx.Document(str(self.dir / "o.docx"))
        self.assertEqual(made.paragraphs[0].text, "Dear Acme & <Sons>, you owe 120.5 by 1 May.")
        self.assertEqual([run.text for run in made.paragraphs[0].runs if run.bold], [", you owe "])
        self.assertEqual([[c.text for c in row.cells] for row in made.tables[0].rows], [["item", ""], ["Hosting", "100"], ["Mail", "20.50"]])
        self.assertEqual(made.sections[0].footer.paragraphs[0].text, "Acme & <Sons>")

    def test_refused(self):
        template = self.template()
        values = {"client": "A", "total": 1, "items": []}
        for change, text in (({}, "no value for: date"), ({"date": []}, "a text or a number"), ({"date": "d", "items": {}}, "list of objects"), ({"date": "d", "items": [{"name": "x"}]}, "has no price")):
            self.refused(FILL, text, template, self.path("v.json", json.dumps(values | change)), "--out", self.dir / "o.docx")
        self.assertFalse((self.dir / "o.docx").exists())
        self.refused(FILL, "line 1", template, self.path("v.json", "{"), "--out", self.dir / "o.docx")
        self.refused(FILL, "not a Word document", self.path("x.docx", b"PK no"), "--list")
        self.refused(FILL, "choose another name", template, self.path("v.json", "{}"), "--out", template)


@HERE
class Render(OnFiles):
    def test_pages(self):
        import docx

        made = docx.Document()
        made.add_paragraph("first page")
        made.add_page_break()
        made.add_paragraph("second page of three words")
        made.save(str(self.dir / "d.docx"))
        out = self.well(RENDER, self.dir / "d.docx", "--out", self.dir, "--pdf")
        self.assertIn("2 pages", out)
        self.assertIn("page 2: 5 words", out)
        self.assertEqual((self.dir / "d-2.png").read_bytes()[:4], b"\x89PNG")
        self.assertTrue((self.dir / "d.pdf").is_file())
        self.refused(RENDER, "pages 1 to 2", self.dir / "d.docx", "--pages", "3", "--out", self.dir)
        self.refused(RENDER, "it renders", self.path("a.exe", "x"))
