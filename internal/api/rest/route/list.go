package route

import (
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

// maxListed is the most items of one answer.
const maxListed = 1000

// ListIn is the part of an input that asks for a page of a list which the server has as a whole.
type ListIn struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"1000" doc:"Items of a page"`
	Cursor string `query:"cursor" maxLength:"512" doc:"next_cursor of the page before"`
}

// PageIn returns the page of items that was asked for. The cursor is the key of the last item before it,
// so that what comes and goes elsewhere in the list moves nothing.
func PageIn[T any](in ListIn, items []T, key func(T) string) (*Body[Page[T]], error) {
	from := 0
	if in.Cursor != "" {
		for from < len(items) && key(items[from]) != in.Cursor {
			from++
		}
		if from == len(items) {
			return nil, sandbox.InvalidField("cursor", "the list has no such place any more: begin again without it")
		}
		from++
	}
	items = items[from:]
	limit := in.Limit
	if limit < 1 || limit > maxListed {
		limit = maxListed
	}
	if len(items) <= limit {
		return PageOf(items, ""), nil
	}
	return PageOf(items[:limit], key(items[limit-1])), nil
}
