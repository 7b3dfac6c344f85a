package rest

import "github.com/skerry-sandbox/skerry/internal/sandbox"

// maxListed is the most items of one answer.
const maxListed = 1000

// ListIn is the part of an input that asks for a page of a list which the server has as a whole.
type ListIn struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"1000" doc:"Items of a page"`
	Cursor string `query:"cursor" maxLength:"512" doc:"next_cursor of the page before"`
}

// pageIn returns the page of items that was asked for. The cursor is the key of the last item before it, so that what comes
// and goes elsewhere in the list moves nothing.
func pageIn[T any](in ListIn, items []T, key func(T) string) (*body[page[T]], error) {
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
		return pageOf(items, ""), nil
	}
	return pageOf(items[:limit], key(items[limit-1])), nil
}

func pluginKey(p sandbox.Plugin) string           { return p.Name }
func commandKey(c sandbox.PluginCommand) string   { return c.Kind + ":" + c.Name }
func marketplaceKey(m sandbox.Marketplace) string { return m.Name }
func execKey(e sandbox.ExecInfo) string           { return e.ExecID }
func contextKey(c sandbox.CodeContext) string     { return c.ContextID }
func driftKey(d sandbox.ToolDrift) string         { return d.Server + " " + d.Tool + " " + d.State }
func toolKey(t sandbox.ToolFound) string          { return t.Name }
func templateKey(t sandbox.Template) string       { return t.Name }
