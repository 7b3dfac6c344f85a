package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	sandboxtemplates "github.com/skerry-sandbox/skerry/sandbox-templates"
)

// builtIn starts a server that has the built-in templates with images of their own beside the one of the tests.
func builtIn(t *testing.T, o options) *server {
	t.Helper()
	o.templates = map[string]string{}
	for _, name := range []string{"browser", "data", "office"} {
		text, err := sandboxtemplates.FS.ReadFile(name + ".yaml")
		must(t, err)
		o.templates[name+".yaml"] = strings.Replace(string(text), "runtime: runc", "runtime: "+o.runtime, 1)
		if o.driver == "docker" {
			need(t, exec.Command("docker", "image", "inspect", "skerry/"+name+":latest").Run() == nil, "the image skerry/"+name+":latest")
		} else {
			_, err := os.Stat(filepath.Join(cache(), "images", name, "rootfs/usr/bin/python3"))
			need(t, err == nil, "the unpacked image "+name)
		}
	}
	return start(t, o)
}

// cli runs the command line against the server and returns what it prints.
func (s *server) cli(args ...string) string {
	s.t.Helper()
	out, err := exec.Command(filepath.Join(bin, "skerry"), append(args, "--server", s.url)...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%v: %v\n%s\n%s", args, err, out, s.log)
	}
	return string(out)
}

// TestTemplateImages: the images browser, data and office do their work under the limits of their templates. They do
// so for a uid that has no home but a memory file system.
func TestTemplateImages(t *testing.T) {
	t.Parallel()
	for _, o := range []options{{driver: "oci", runtime: "runc"}, {driver: "oci", runtime: "runsc"}, {driver: "docker", runtime: "runc"}} {
		t.Run(o.driver+"/"+o.runtime, func(t *testing.T) {
			needDriver(t, o.driver, o.runtime)
			s := builtIn(t, o)
			begin := func(name string) {
				if a := s.do("PUT", "/api/threads/"+name+"/sandbox", map[string]any{"template": name, "wait_s": 120}); a.status != 200 {
					t.Fatalf("%s: %d %s", name, a.status, a.body)
				}
			}
			begin("data")
			s.chart(t) // at once: its first program runs before an interpreter waits
			begin("office")
			once := o.driver == "oci" && o.runtime == "runc" // what does not differ is looked at there
			languages := []string{"typescript"}
			if once {
				languages = append(languages, "javascript")
			}
			s.documents(t, languages)
			begin("browser")
			s.pages(t)
			if once {
				s.macro(t)
				s.scripts(t)
				if out := s.cli("templates", "test", "data", "office", "browser"); strings.Count(out, "ok   ") != 12 {
					t.Errorf("smoke tests: %s", out)
				}
				s.listed(t)
			}
		})
	}
}

// png returns a file of a thread, which must be a picture.
func (s *server) png(t *testing.T, thread, path string) []byte {
	t.Helper()
	a := s.do("GET", "/api/threads/"+thread+"/files/content?path="+path, nil)
	if a.status != 200 || !bytes.HasPrefix(a.body, []byte("\x89PNG\r\n")) || len(a.body) < 1000 {
		t.Errorf("%s: %d, %d bytes", path, a.status, len(a.body))
	}
	return a.body
}

func (s *server) chart(t *testing.T) {
	python := func(code string) result {
		return s.run("data", "execute_code", map[string]any{"language": "python", "timeout": 120, "code": code})
	}
	r := python(`
import sys
print("numpy" in sys.modules)
import pandas as pd, matplotlib.pyplot as plt
t = pd.DataFrame({"month": ["Jan", "Feb"], "sales": [3, 5]})
t.plot.bar(x="month", y="sales")
plt.savefig("/mnt/user-data/outputs/sales.png")
print(t.sales.sum())
`)
	if r.Stdout != "False\n8\n" || r.ExitCode == nil || *r.ExitCode != 0 || len(r.Files) != 1 || r.Files[0].Path != "/mnt/user-data/outputs/sales.png" || strings.Contains(r.Stderr, "not a writable directory") {
		t.Fatalf("%+v", r)
	}
	s.png(t, "data", r.Files[0].Path)
	// The interpreter that waits has the template's modules; it needs a moment to get there.
	eventually(t, "a program finds pandas loaded", func() bool {
		r := python(`import sys; print("pandas" in sys.modules)`)
		if r.Status != "exited" {
			t.Fatalf("a program that waited did not end: %+v", r)
		}
		return r.Stdout == "True\n"
	})
	if r := python("import numpy as np\nnp.ones(3 * 2**30 // 8).sum()"); r.Status == "exited" && *r.ExitCode == 0 {
		t.Errorf("3 GiB fit into a sandbox of 2 GiB: %+v", r)
	}
}

func (s *server) documents(t *testing.T, languages []string) {
	for _, language := range languages {
		r := s.run("office", "execute_code", map[string]any{"language": language, "timeout": 120, "code": `
import { Document, Packer, Paragraph, HeadingLevel } from "docx";
import pptxgen from "pptxgenjs";
import { writeFileSync } from "node:fs";
const doc = new Document({ sections: [{ children: [new Paragraph({ text: "Quarterly report", heading: HeadingLevel.TITLE }), new Paragraph("The island stands.")] }] });
writeFileSync("/mnt/user-data/outputs/report.docx", await Packer.toBuffer(doc));
const deck = new pptxgen();
deck.addSlide().addText("Skerry slides", { x: 1, y: 1 });
await deck.writeFile({ fileName: "/mnt/user-data/outputs/deck.pptx" });
`})
		if r.ExitCode == nil || *r.ExitCode != 0 || len(r.Files) != 2 {
			t.Fatalf("%s: %+v", language, r)
		}
	}
	convert := s.run("office", "exec", map[string]any{"timeout_s": 170, "command": `set -e
cd /mnt/user-data/outputs
soffice --headless --convert-to pdf report.docx deck.pptx >/dev/null
pdftoppm -r 150 -png -singlefile report.pdf report
tesseract report.png stdout 2>/dev/null
pdftotext deck.pdf -
pandoc report.docx -t plain
node -e 'import("docx").then(d => console.log("node", typeof d.Packer))'
fc-list | grep -c Liberation`})
	for _, want := range []string{"Quarterly report", "The island stands.", "Skerry slides", "node function"} {
		if !strings.Contains(convert.Stdout, want) {
			t.Errorf("no %q in %s (%s)", want, convert.Stdout, convert.Stderr)
		}
	}
	if strings.Count(convert.Stdout, "The island stands.") < 2 { // read by tesseract, and by pandoc
		t.Errorf("%s", convert.Stdout)
	}
	// Documents that Word and PowerPoint made, and one of LibreOffice's own format, there and back.
	others := s.run("office", "exec", map[string]any{"timeout_s": 170, "command": `set -e
cd /mnt/user-data/workspace
python3 - <<'P'
import os, shutil, docx, pptx
shutil.copy(os.path.join(os.path.dirname(docx.__file__), "templates/default.docx"), "word.docx")
shutil.copy(os.path.join(os.path.dirname(pptx.__file__), "templates/default.pptx"), "point.pptx")
d = docx.Document("word.docx")
d.add_table(rows=1, cols=2).cell(0, 1).text = "a cell of Word"
d.save("word.docx")
p = pptx.Presentation("point.pptx")
p.slides.add_slide(p.slide_layouts[0]).shapes.title.text = "a title of PowerPoint"
p.save("point.pptx")
P
soffice --headless --convert-to odt word.docx >/dev/null 2>&1
rm word.docx
soffice --headless --convert-to docx word.odt >/dev/null 2>&1
soffice --headless --convert-to pdf word.odt point.pptx >/dev/null 2>&1
pdftotext word.pdf - && pdftotext point.pdf - && pandoc word.docx -t plain`})
	if strings.Count(others.Stdout, "a cell of Word") != 2 || !strings.Contains(others.Stdout, "a title of PowerPoint") {
		t.Errorf("%q %s", others.Stdout, others.Stderr)
	}
	s.png(t, "office", "/mnt/user-data/outputs/report.png")
	r := s.run("office", "execute_code", map[string]any{"language": "python", "timeout": 120, "code": `
import docx, pptx
print([p.text for p in docx.Document("/mnt/user-data/outputs/report.docx").paragraphs])
print([s.text_frame.text for s in pptx.Presentation("/mnt/user-data/outputs/deck.pptx").slides[0].shapes])
`})
	if r.Stdout != "['Quarterly report', 'The island stands.']\n['Skerry slides']\n" {
		t.Errorf("%+v", r)
	}
}

// pages looks at a page in a browser as skills do: from Python, from JavaScript and by its name.
func (s *server) pages(t *testing.T) {
	r := s.run("browser", "exec", map[string]any{"timeout_s": 170, "command": `set -e
cd /mnt/user-data/outputs
printf '<h1 style="color: #c00; font: 40px Arial">Skerry</h1><script>document.title = 6 * 7</script>' >page.html
python3 - <<'P'
from playwright.sync_api import sync_playwright
with sync_playwright() as p:
    browser = p.chromium.launch()
    page = browser.new_page()
    page.goto("file:///mnt/user-data/outputs/page.html")
    page.screenshot(path="python.png")
    print("python", page.title(), page.evaluate("document.querySelector('h1').offsetWidth > 100"))
    browser.close()
P
cat >shot.mjs <<'J'
import { chromium } from "playwright";
import puppeteer from "puppeteer";
for (const [name, launch] of [["playwright", () => chromium.launch()], ["puppeteer", () => puppeteer.launch()]]) {
  const browser = await launch();
  const page = await browser.newPage();
  await page.goto("file:///mnt/user-data/outputs/page.html");
  await page.pdf({ path: name + ".pdf" });
  console.log(name, await page.title());
  await browser.close();
}
J
node shot.mjs
google-chrome --headless --screenshot=chrome.png file:///mnt/user-data/outputs/page.html 2>/dev/null
head -c 5 playwright.pdf puppeteer.pdf
python3 -c 'from PIL import Image; print(sum(1 for p in Image.open("chrome.png").convert("RGB").getdata() if p[0] > 180 and p[1] < 40) > 500)'`})
	if want := "python 42 True\nplaywright 42\npuppeteer 42\n==> playwright.pdf <==\n%PDF-\n==> puppeteer.pdf <==\n%PDF-True\n"; r.Stdout != want {
		t.Errorf("%q, want %q; %s", r.Stdout, want, r.Stderr)
	}
	s.png(t, "browser", "/mnt/user-data/outputs/python.png")
}

// macro recalculates a sheet with a macro, as skills for spreadsheets do.
func (s *server) macro(t *testing.T) {
	r := s.run("office", "exec", map[string]any{"timeout_s": 170, "command": `set -e
cd /mnt/user-data/outputs
python3 - <<'P'
import openpyxl
from openpyxl.chart import BarChart, Reference
book = openpyxl.Workbook()
sheet = book.active
for n in range(1, 6):
    sheet.append([f"m{n}", n * 10])
sheet["B6"] = "=SUM(B1:B5)"
chart = BarChart()
chart.add_data(Reference(sheet, min_col=2, min_row=1, max_row=5))
sheet.add_chart(chart, "D2")
book.save("book.xlsx")
P
soffice --headless --terminate_after_init >/dev/null 2>&1
cat >~/.config/libreoffice/4/user/basic/Standard/Module1.xba <<'X'
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE script:module PUBLIC "-//OpenOffice.org//DTD OfficeDocument 1.0//EN" "module.dtd">
<script:module xmlns:script="http://openoffice.org/2000/script" script:name="Module1" script:language="StarBasic">
Sub RecalculateAndSave()
  ThisComponent.calculateAll()
  ThisComponent.store()
  ThisComponent.close(True)
End Sub
Sub AcceptChanges()
  dim none()
  createUnoService("com.sun.star.frame.DispatchHelper").executeDispatch(ThisComponent.CurrentController.Frame, ".uno:AcceptAllTrackedChanges", "", 0, none())
  ThisComponent.store()
  ThisComponent.close(True)
End Sub
</script:module>
X
soffice --headless --norestore 'vnd.sun.star.script:Standard.Module1.RecalculateAndSave?language=Basic&location=application' $PWD/book.xlsx 2>/dev/null
python3 -c 'import openpyxl; print(openpyxl.load_workbook("book.xlsx", data_only=True).active["B6"].value)'
unzip -l book.xlsx | grep -c charts/chart1.xml
markitdown book.xlsx | grep -c '| m5 |'
python3 - <<'P'
import docx
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
d = docx.Document()
p = d.add_paragraph("kept ")
for change in ('<w:ins %s w:id="1" w:author="a"><w:r><w:t>inserted</w:t></w:r></w:ins>', '<w:del %s w:id="2" w:author="a"><w:r><w:delText>deleted</w:delText></w:r></w:del>'):
    p._p.append(parse_xml(change % nsdecls("w")))
d.save("tracked.docx")
P
soffice --headless --norestore 'vnd.sun.star.script:Standard.Module1.AcceptChanges?language=Basic&location=application' $PWD/tracked.docx 2>/dev/null
soffice --headless --convert-to odt tracked.docx >/dev/null 2>&1
unzip -p tracked.docx word/document.xml | grep -c '<w:ins ' || true
pandoc tracked.odt -t plain
node --input-type=module -e '
import sharp from "sharp";
import { createElement } from "react";
import { renderToStaticMarkup } from "react-dom/server";
import { FaAnchor } from "react-icons/fa";
const picture = await sharp(Buffer.from(renderToStaticMarkup(createElement(FaAnchor, { size: 64 })))).png().toBuffer({ resolveWithObject: true });
console.log(picture.info.format, picture.info.width);'
convert xc:red -resize 8x8 red.png
python3 -c 'import imageio.v3 as iio; print(iio.imread("red.png").shape)'`})
	if r.Stdout != "150\n1\n1\n0\nkept inserted\npng 64\n(8, 8, 3)\n" {
		t.Errorf("%q, want 150, a chart, and changes taken: %s", r.Stdout, r.Stderr)
	}
}

// scripts compares the picture of a page in five scripts with what it should be.
func (s *server) scripts(t *testing.T) {
	put := func(path, file string) {
		data, err := os.ReadFile(file)
		must(t, err)
		if a := s.do("PUT", "/api/threads/office/files/content?path=/mnt/user-data/workspace/"+path, data); a.status/100 != 2 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	const golden = "testdata/scripts.png"
	put("scripts.py", "testdata/scripts.py")
	page := `set -e
cd /mnt/user-data/workspace
rm -f report.pdf
python3 scripts.py report.docx
soffice --headless --convert-to pdf report.docx >&2
pdftoppm -r 60 -gray -png -singlefile report.pdf page
`
	r := s.run("office", "exec", map[string]any{"timeout_s": 170, "command": page + "pdffonts report.pdf"})
	for _, font := range []string{"Carlito", "Caladea", "LiberationSans", "LiberationSerif", "NotoSansCJK", "DejaVuSans", "Devanagari", "Symbola"} {
		if !strings.Contains(r.Stdout, font) {
			t.Errorf("no font %s in %s (%s)", font, r.Stdout, r.Stderr)
		}
	}
	if *update { // look at it before it is committed
		must(t, os.WriteFile(golden, s.png(t, "office", "/mnt/user-data/workspace/page.png"), 0o644))
	}
	put("want.png", golden)
	// compare prints the absolute difference, and how much that is of what it may be.
	differs := func(before string) float64 {
		r := s.run("office", "exec", map[string]any{"timeout_s": 170, "command": before + "compare -metric RMSE want.png page.png null: || true"})
		_, share, _ := strings.Cut(r.Stderr, "(")
		share, _, _ = strings.Cut(share, ")")
		d, err := strconv.ParseFloat(share, 64)
		if err != nil {
			t.Fatalf("%q %q", r.Stdout, r.Stderr)
		}
		return d
	}
	if d := differs("cd /mnt/user-data/workspace\n"); d > 0.02 {
		t.Errorf("the page looks other than %s: %.4f of what may differ does", golden, d)
	}
	// The same page where there is one font: a comparison that passed it would be worth nothing.
	one := `mkdir -p /tmp/one && cp -r ~/.config /tmp/one/
printf '<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig><dir>/usr/share/fonts/truetype/dejavu</dir><cachedir>/tmp/fc</cachedir></fontconfig>' >/tmp/one/fonts.conf
export FONTCONFIG_FILE=/tmp/one/fonts.conf
`
	if d := differs(one + page); d < 0.03 {
		t.Errorf("without fonts the page differs by %.4f only", d)
	}
}

// listed looks into the list of parts.
func (s *server) listed(t *testing.T) {
	var bom struct {
		Format     string `json:"bomFormat"`
		Components []struct {
			PURL     string `json:"purl"`
			Licenses []any
		}
	}
	must(t, json.Unmarshal([]byte(s.cli("templates", "sbom", "office")), &bom))
	without := 0
	found := map[string]bool{}
	for _, c := range bom.Components {
		name, _, _ := strings.Cut(c.PURL, "@")
		found[name] = true
		if len(c.Licenses) == 0 {
			without++
		}
	}
	for _, want := range []string{"pkg:deb/debian/libreoffice-core", "pkg:deb/debian/pandoc", "pkg:pypi/python-docx", "pkg:npm/docx", "pkg:npm/pptxgenjs"} {
		if !found[want] {
			t.Errorf("%s is not listed", want)
		}
	}
	if bom.Format != "CycloneDX" || len(bom.Components) < 300 || without > len(bom.Components)/20 {
		t.Errorf("%s, %d components, %d without a licence", bom.Format, len(bom.Components), without)
	}
}
