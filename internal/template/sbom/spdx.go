package sbom

import (
	"fmt"
	"io"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// none is SPDX's word for what the writer does not claim to know.
const none = "NOASSERTION"

// WriteSPDX writes the list as SPDX 2.3 in JSON. Licences are comments: packages name them in words of their own, and
// SPDX has a closed list.
func (l List) WriteSPDX(w io.Writer, of Subject) error {
	purpose := "CONTAINER"
	if of.Program {
		purpose = "APPLICATION"
	}
	root := common.MakeDocElementID("", "Subject")
	doc := v2_3.Document{
		SPDXVersion: v2_3.Version, DataLicense: v2_3.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: of.Name,
		DocumentNamespace: "https://github.com/skerry-sandbox/skerry/sbom/" + l.id(of).String(),
		CreationInfo: &v2_3.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "skerry-" + of.Tool}},
			Created:  of.Time.UTC().Format(time.RFC3339),
		},
		Packages:      []*v2_3.Package{{PackageName: of.Name, PackageSPDXIdentifier: root.ElementRefID, PackageVersion: of.Version, PackageDownloadLocation: none, PrimaryPackagePurpose: purpose}},
		Relationships: []*v2_3.Relationship{{RefA: common.MakeDocElementID("", "DOCUMENT"), RefB: root, Relationship: common.TypeRelationshipDescribe}},
	}
	if l.System != "" {
		contain(&doc, root, &v2_3.Package{PackageName: l.System, PackageVersion: l.SystemVersion, PrimaryPackagePurpose: "OPERATING-SYSTEM"})
	}
	for _, p := range l.unique() {
		found := &v2_3.Package{
			PackageName: p.Name, PackageVersion: p.Version, PrimaryPackagePurpose: "LIBRARY",
			PackageExternalReferences: []*v2_3.PackageExternalReference{{Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: l.purl(p)}},
		}
		if p.Licence != "" {
			found.PackageLicenseComments = "the package says: " + p.Licence
		}
		contain(&doc, root, found)
	}
	return json.Write(&doc, w, json.Indent("  "))
}

func contain(doc *v2_3.Document, root common.DocElementID, p *v2_3.Package) {
	id := common.MakeDocElementID("", fmt.Sprintf("Package-%d", len(doc.Packages)))
	p.PackageSPDXIdentifier, p.PackageDownloadLocation = id.ElementRefID, none
	doc.Packages = append(doc.Packages, p)
	doc.Relationships = append(doc.Relationships, &v2_3.Relationship{RefA: root, RefB: id, Relationship: common.TypeRelationshipContains})
}
