package search

import (
	_ "embed"
	"slices"
	"strings"
	"sync"
)

// verbTable has a line for each kind of action: the verb that PowerShell prescribes for it, the synonyms
// that it asks authors to avoid, and the verb by which it explains the action. It is taken as it stands
// from the table "Approved Verbs for PowerShell Commands" of Microsoft's documentation (2025): a list
// that was made for the names of commands, and from no set of queries.
//
//go:embed verbs.txt
var verbTable string

// related returns the stems of the other verbs in the lines of a verb's stem.
var related = sync.OnceValue(func() map[string][]string {
	m := map[string][]string{}
	for line := range strings.Lines(verbTable) {
		var group []string
		for w := range strings.FieldsSeq(line) {
			group = append(group, stem(w))
		}
		for _, a := range group {
			for _, b := range group {
				if a != b && !slices.Contains(m[a], b) {
					m[a] = append(m[a], b)
				}
			}
		}
	}
	return m
})
