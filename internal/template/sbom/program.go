package sbom

import (
	"debug/buildinfo"
	"fmt"
	"slices"
	"strings"
)

// AddProgram adds the modules that Go's linker noted in a program, and Go's own library. version is that of the
// program's own module, which a build from a clone does not know.
func (l *List) AddProgram(file, version string) error {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return fmt.Errorf("%s is no program of Go: %w", file, err)
	}
	l.add(Part{Kind: "golang", Name: "stdlib", Version: strings.TrimPrefix(strings.Fields(info.GoVersion)[0], "go")},
		Part{Kind: "golang", Name: info.Main.Path, Version: version})
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		l.add(Part{Kind: "golang", Name: m.Path, Version: m.Version})
	}
	return nil
}

// add keeps the list sorted and without doubles.
func (l *List) add(parts ...Part) {
	l.Parts = append(l.Parts, parts...)
	slices.SortFunc(l.Parts, compare)
	l.Parts = slices.Compact(l.Parts)
}
