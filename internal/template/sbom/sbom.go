// Package sbom lists what an image or a program is made of, as CycloneDX and as SPDX: packages of the system, of Python
// and of JavaScript, and Go modules, each with version, licence and package URL.
package sbom

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
)

// Script prints what is in the sandbox that it runs in, for Parse. It wants sh, sed and awk.
//
//go:embed list.sh
var Script string

// Bounds of what an image may say of itself: it is data.
const (
	maxParts = 50_000
	maxField = 500
)

// Part is one package.
type Part struct {
	Kind    string // deb, apk, rpm, pypi, npm or golang
	Name    string
	Version string
	Arch    string // "" for every one
	Licence string // as the package says it; "" when it does not
}

// List is what an image is made of, without doubles, sorted.
type List struct {
	System, SystemVersion string // "debian", "12"; "" when the image does not say
	Parts                 []Part
}

var kinds = []string{"deb", "apk", "rpm", "pypi", "npm"}

// Parse reads what Script printed. An error: it did not come to its end, or is no such text.
func Parse(r io.Reader) (List, error) {
	var list List
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 64<<10)
	for lines.Scan() {
		if lines.Text() == "end" {
			slices.SortFunc(list.Parts, compare)
			list.Parts = slices.Compact(list.Parts)
			return list, nil
		}
		f := strings.Split(lines.Text(), "\t")
		if len(f) != 5 || f[1] == "" || f[0] != "o" && !slices.Contains(kinds, f[0]) {
			return list, fmt.Errorf("a line that is none: %.80q", lines.Text())
		}
		for i := range f {
			f[i] = strings.ToValidUTF8(f[i], "?")
			if len(f[i]) > maxField {
				f[i] = strings.ToValidUTF8(f[i][:maxField], "")
			}
		}
		if f[0] == "o" {
			list.System, list.SystemVersion = f[1], f[2]
			continue
		}
		if len(list.Parts) == maxParts {
			return list, fmt.Errorf("more than %d packages", maxParts)
		}
		list.Parts = append(list.Parts, Part{f[0], f[1], f[2], f[3], f[4]})
	}
	return list, errors.Join(errors.New("the list did not come to its end"), lines.Err())
}

func compare(a, b Part) int {
	return slices.Compare([]string{a.Kind, a.Name, a.Version, a.Arch, a.Licence}, []string{b.Kind, b.Name, b.Version, b.Arch, b.Licence})
}

// Subject is what a list is of.
type Subject struct {
	Name    string // as people call it, for example skerry/base
	Version string // "" when it has none
	Program bool   // false: it is an image
	Tool    string // version of the program that writes the list
	Time    time.Time
}

// id is the same for the same list of the same subject, so that a release can be made again.
func (l List) id(of Subject) uuid.UUID {
	var text strings.Builder
	fmt.Fprintln(&text, of.Name, of.Version, of.Tool, of.Time.UTC().Format(time.RFC3339), l.System, l.SystemVersion)
	for _, p := range l.Parts {
		fmt.Fprintln(&text, p)
	}
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte(text.String()))
}

// Write writes the list as CycloneDX 1.6 in JSON.
func (l List) Write(w io.Writer, of Subject) error {
	bom := cdx.NewBOM()
	bom.SerialNumber = "urn:uuid:" + l.id(of).String()
	kind := cdx.ComponentTypeContainer
	if of.Program {
		kind = cdx.ComponentTypeApplication
	}
	bom.Metadata = &cdx.Metadata{
		Timestamp: of.Time.UTC().Format(time.RFC3339),
		Component: &cdx.Component{BOMRef: "subject", Type: kind, Name: of.Name, Version: of.Version},
		Tools:     &cdx.ToolsChoice{Components: &[]cdx.Component{{Type: cdx.ComponentTypeApplication, Name: "skerry", Version: of.Tool}}},
	}
	parts := make([]cdx.Component, 0, len(l.Parts)+1)
	if l.System != "" {
		parts = append(parts, cdx.Component{BOMRef: "system", Type: cdx.ComponentTypeOS, Name: l.System, Version: l.SystemVersion})
	}
	for _, p := range l.unique() {
		purl := l.purl(p)
		parts = append(parts, cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: p.Name, Version: p.Version, PackageURL: purl, Licenses: licences(p)})
	}
	bom.Components = &parts
	return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
}

// unique has one entry for a package that is there twice: the references must differ.
func (l List) unique() []Part {
	return slices.CompactFunc(slices.Clone(l.Parts), func(a, b Part) bool { return l.purl(a) == l.purl(b) })
}

// purl is the package's name in the form that scanners for vulnerabilities read.
func (l List) purl(p Part) string {
	name, where := url.PathEscape(p.Name), ""
	switch p.Kind {
	case "deb", "apk", "rpm":
		if l.System != "" {
			where = url.PathEscape(l.System) + "/"
		}
	case "golang":
		name = strings.ReplaceAll(name, "%2F", "/")
	case "pypi":
		name = url.PathEscape(strings.ReplaceAll(strings.ToLower(p.Name), "_", "-"))
	case "npm":
		if scope, rest, ok := strings.Cut(p.Name, "/"); ok && strings.HasPrefix(scope, "@") {
			where, name = "%40"+url.PathEscape(scope[1:])+"/", url.PathEscape(rest)
		}
	}
	purl := "pkg:" + p.Kind + "/" + where + name
	if p.Version != "" {
		purl += "@" + strings.ReplaceAll(url.PathEscape(p.Version), "+", "%2B")
	}
	if p.Arch != "" {
		purl += "?arch=" + url.QueryEscape(p.Arch)
	}
	return purl
}

// expression matches SPDX expressions, in which PyPI and npm say licences nowadays.
var expression = regexp.MustCompile(`^\(*[A-Za-z0-9][A-Za-z0-9.+-]*\)*( (AND|OR|WITH) \(*[A-Za-z0-9][A-Za-z0-9.+-]*\)*)*$`)

func licences(p Part) *cdx.Licenses {
	if p.Licence == "" {
		return nil
	}
	if (p.Kind == "pypi" || p.Kind == "npm") && expression.MatchString(p.Licence) {
		return &cdx.Licenses{{Expression: p.Licence}}
	}
	var all cdx.Licenses
	for name := range strings.SplitSeq(p.Licence, ";") {
		if name = strings.TrimSpace(name); name != "" {
			all = append(all, cdx.LicenseChoice{License: &cdx.License{Name: name}})
		}
	}
	return &all
}
