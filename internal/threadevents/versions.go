package threadevents

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// versionBytes is how many bytes of a digest a version shows: two of one thread must differ, no more.
const versionBytes = 8

// toolsVersion is a digest of the tools that a caller has in a thread, and of how they are offered.
func toolsVersion(o sandbox.Offer) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%q %t %q\n", o.Mode, o.Code, o.Tools.Hash) // the hash is of all definitions, the names of those that the caller sees
	for _, t := range o.Tools.Tools {
		fmt.Fprintf(sum, "%q %q %t %q\n", t.Printed, t.Disclosure, t.Active, t.Input)
	}
	return hex.EncodeToString(sum.Sum(nil)[:versionBytes])
}

// skillsVersion is a digest of the skills of a thread.
func skillsVersion(list []sandbox.Skill) string {
	sum := sha256.New()
	for _, s := range list {
		fmt.Fprintf(sum, "%q %q %q %t %q\n", s.Name, s.Category, s.Digest, s.Hidden, s.Location)
	}
	return hex.EncodeToString(sum.Sum(nil)[:versionBytes])
}
