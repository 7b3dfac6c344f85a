package sbom

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	spdx "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"
)

const listed = "o\tdebian\t12\t\t\ndeb\tlibc6\t2.36-9+deb12u10\tamd64\tGPL-2+;LGPL-2.1+\npypi\tPillow_Heif\t1.0\t\tMIT-CMU\n" +
	"npm\t@types/node\t22.1.0\t\t(MIT OR Apache-2.0)\nnpm\t@types/node\t22.1.0\t\t(MIT OR Apache-2.0)\npypi\told\t1\t\tBSD License\nend\n"

func TestWrite(t *testing.T) {
	list, err := Parse(strings.NewReader(listed))
	if err != nil || len(list.Parts) != 4 || list.System != "debian" {
		t.Fatalf("%+v, %v", list, err)
	}
	var out bytes.Buffer
	if err := list.Write(&out, Subject{Name: "skerry/x", Tool: "v1", Time: time.Now()}); err != nil {
		t.Fatal(err)
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(&out, cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if bom.SpecVersion != cdx.SpecVersion1_6 || bom.Metadata.Component.Name != "skerry/x" || len(*bom.Components) != 5 {
		t.Errorf("%+v", bom)
	}
	got := map[string]string{}
	for _, c := range *bom.Components {
		raw, err := json.Marshal(c.Licenses)
		if err != nil {
			t.Fatal(err)
		}
		got[c.PackageURL] = string(raw)
	}
	for purl, want := range map[string]string{
		"pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64": `[{"license":{"name":"GPL-2+"}},{"license":{"name":"LGPL-2.1+"}}]`,
		"pkg:pypi/pillow-heif@1.0":                          `[{"expression":"MIT-CMU"}]`,
		"pkg:npm/%40types/node@22.1.0":                      `[{"expression":"(MIT OR Apache-2.0)"}]`,
		"pkg:pypi/old@1":                                    `[{"license":{"name":"BSD License"}}]`,
	} {
		if got[purl] != want {
			t.Errorf("%s: %s, want %s; there are %v", purl, got[purl], want, got)
		}
	}
}

// TestSPDX reads what it writes, with the same packages and package URLs as CycloneDX has.
func TestSPDX(t *testing.T) {
	list, err := Parse(strings.NewReader(listed))
	if err != nil {
		t.Fatal(err)
	}
	var out, again bytes.Buffer
	of := Subject{Name: "skerry/x", Version: "1", Tool: "v1", Time: time.Unix(1, 0)}
	if err := errors.Join(list.WriteSPDX(&out, of), list.WriteSPDX(&again, of)); err != nil {
		t.Fatal(err)
	}
	if out.String() != again.String() {
		t.Error("the same list has two texts")
	}
	if strings.Contains(out.String(), "DocumentRef-") {
		t.Error("a part is named as one of another document")
	}
	doc, err := spdx.Read(&out)
	if err != nil {
		t.Fatal(err)
	}
	if err := spdxlib.ValidateDocument(doc); err != nil {
		t.Error(err)
	}
	got := map[string]string{}
	for _, p := range doc.Packages {
		for _, r := range p.PackageExternalReferences {
			got[r.Locator] = p.PackageLicenseComments
		}
	}
	if len(doc.Packages) != 6 || len(got) != 4 || got["pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64"] != "the package says: GPL-2+;LGPL-2.1+" {
		t.Errorf("%d packages, %v", len(doc.Packages), got)
	}
}

// TestProgram lists the modules of the program that writes the lists of a release.
func TestProgram(t *testing.T) {
	self := filepath.Join(t.TempDir(), "sbom")
	if text, err := exec.CommandContext(t.Context(), "go", "build", "-o", self, "github.com/skerry-sandbox/skerry/deploy/packages/sbom").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	var list List
	if err := errors.Join(list.AddProgram(self, "9.9.9"), list.AddProgram(self, "9.9.9")); err != nil {
		t.Fatal(err)
	}
	var purls []string
	for _, p := range list.Parts {
		purls = append(purls, list.purl(p))
	}
	all := strings.Join(purls, "\n") + "\n"
	for _, want := range []string{"pkg:golang/stdlib@" + strings.TrimPrefix(runtime.Version(), "go"), "pkg:golang/github.com/skerry-sandbox/skerry@9.9.9", "pkg:golang/github.com/google/uuid@v"} {
		if strings.Count(all, want) != 1 {
			t.Errorf("%s is not there once, but: %s", want, all)
		}
	}
	if err := list.AddProgram(filepath.Join(t.TempDir(), "none"), "1"); err == nil {
		t.Error("a file that is not there was read")
	}
}

func TestOutputIsData(t *testing.T) {
	for name, text := range map[string]string{
		"cut": "deb\ta\t1\t\t\n", "garbage": "rm -rf\nend\n", "kind": "evil\ta\t1\t\t\nend\n", "nameless": "deb\t\t1\t\t\nend\n", "empty": "",
		"long": "deb\t" + strings.Repeat("x", 1<<20) + "\t1\t\t\nend\n", "many": strings.Repeat("deb\ta\t1\t\t\n", maxParts+1) + "end\n",
	} {
		if _, err := Parse(strings.NewReader(text)); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	list, err := Parse(strings.NewReader("deb\ta\xff" + strings.Repeat("é", 400) + "\t1\t\t\nend\n"))
	if err != nil || len(list.Parts[0].Name) > maxField {
		t.Errorf("%v, %v", list, err)
	}
}

// FuzzParse: whatever an image says of itself, its list is within bounds, and can be written in both forms.
func FuzzParse(f *testing.F) {
	f.Add(listed)
	f.Add("npm\t@/%2f\t\xff\t?\t(A OR\nend\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := Parse(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, p := range list.Parts {
			if len(p.Name) > maxField || strings.ContainsAny(list.purl(p), " \t\n") {
				t.Errorf("%q is the package URL of %q", list.purl(p), p)
			}
		}
		of := Subject{Name: "x", Time: time.Unix(1, 0)}
		if err := errors.Join(list.Write(new(bytes.Buffer), of), list.WriteSPDX(new(bytes.Buffer), of)); err != nil {
			t.Error(err)
		}
	})
}

// TestScript runs the script on this machine, as it runs in a sandbox.
func TestScript(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, sh)
	cmd.Stdin = strings.NewReader(Script)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse(bytes.NewReader(out)); err != nil {
		t.Error(err)
	}
}
