package search

import (
	"cmp"
	"slices"

	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// What an answer at sandbox.DetailFull describes when the query has no limit. A model reads every byte of it, so it
// holds the tools that the model is likely to call. It names the others, because one of them may be the right one.
// testdata/README.md says what other numbers come to.
const (
	fewTools = 4        // are described
	nearBest = 0.4      // of the best score: a tool below it is only named
	fewBytes = 12 << 10 // of definitions: a tool beyond it is only named, unless it is the best
)

// Checked returns a query with its defaults. An error is Invalid, and names the field.
func Checked(q sandbox.ToolQuery) (sandbox.ToolQuery, error) {
	q.Detail = cmp.Or(q.Detail, sandbox.DetailDesc)
	switch {
	case !slices.Contains([]string{sandbox.DetailName, sandbox.DetailDesc, sandbox.DetailFull}, q.Detail):
		return q, sandbox.InvalidField("detail", "%.40q is not name, desc or full", q.Detail)
	case q.Limit < 0 || q.Limit > sandbox.MaxToolsFound:
		return q, sandbox.InvalidField("limit", "%d is not within 1 to %d", q.Limit, sandbox.MaxToolsFound)
	}
	return q, nil
}

// Answer finds tools by the words of a checked query. keep says which tools are looked at.
func (ix *Index) Answer(q sandbox.ToolQuery, keep func(sandbox.Tool) bool) sandbox.ToolSearch {
	hits, matched := ix.Find(q.Query, sandbox.MaxToolsFound, keep)
	return answer(ix.tools, q, hits, matched)
}

// List answers a checked query without words: with the first tools of a set.
func List(tools []sandbox.Tool, q sandbox.ToolQuery, keep func(sandbox.Tool) bool) sandbox.ToolSearch {
	var hits []Hit
	matched := 0
	for i, t := range tools {
		if !keep(t) {
			continue
		}
		if matched++; matched <= sandbox.MaxToolsFound {
			hits = append(hits, Hit{Tool: i})
		}
	}
	return answer(tools, q, hits, matched)
}

func answer(tools []sandbox.Tool, q sandbox.ToolQuery, hits []Hit, matched int) sandbox.ToolSearch {
	res := sandbox.ToolSearch{Query: q.Query, ServerFilter: q.Server, MatchCount: matched, Tools: []sandbox.ToolFound{}}
	few := q.Detail == sandbox.DetailFull && q.Limit == 0
	if q.Limit > 0 {
		hits = hits[:min(q.Limit, len(hits))]
	}
	size := 0
	for i, hit := range hits {
		t := tools[hit.Tool]
		if few && (i >= fewTools || hit.Score < nearBest*hits[0].Score) {
			res.Also = append(res.Also, t.Printed)
			continue
		}
		found := shown(t, q)
		if q.Detail == sandbox.DetailFull {
			found.Why = hit.Why
		}
		size += len(found.Description) + len(found.Parameters) + len(found.Output)
		if few && i > 0 && size > fewBytes {
			res.Also = append(res.Also, t.Printed)
			continue
		}
		res.Tools = append(res.Tools, found)
	}
	res.Showing = len(res.Tools)
	return res
}

// shown is a tool with as much of it as the query asks for.
func shown(t sandbox.Tool, q sandbox.ToolQuery) sandbox.ToolFound {
	f := sandbox.ToolFound{Name: t.Printed, ShortName: t.Name, Server: t.Server}
	switch q.Detail {
	case sandbox.DetailDesc:
		f.Description = cut(cmp.Or(t.Summary, t.Description), maxLine)
	case sandbox.DetailFull:
		f.Description, f.Parameters, f.WrapperPath = cut(t.Description, maxDescription), cutSchema(t.Input), t.WrapperPath
		if q.OutputSchema {
			f.Output = cutSchema(t.Output)
		}
	}
	return f
}
