package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	sandboxtemplates "github.com/skerry-sandbox/skerry/sandbox-templates"
)

// builtIn starts a server that has two of the built-in templates beside the one of the tests.
func builtIn(t *testing.T, o options) *server {
	t.Helper()
	o.templates = map[string]string{}
	for _, name := range []string{"data", "office"} {
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

// TestTemplateImages: the images data and office do their work under the limits of their templates. They do
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
			if once {
				if out := s.cli("templates", "test", "data", "office"); strings.Count(out, "ok   ") != 9 {
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
	for _, want := range []string{"pkg:deb/debian/libreoffice-core-nogui", "pkg:deb/debian/pandoc", "pkg:pypi/python-docx", "pkg:npm/docx", "pkg:npm/pptxgenjs"} {
		if !found[want] {
			t.Errorf("%s is not listed", want)
		}
	}
	if bom.Format != "CycloneDX" || len(bom.Components) < 300 || without > len(bom.Components)/20 {
		t.Errorf("%s, %d components, %d without a licence", bom.Format, len(bom.Components), without)
	}
}
