package audit

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/tools/argform"
)

// Bounds of a tree.
const (
	maxDepth    = 16
	maxTree     = 10_000
	relatedRead = 5_000 // records about one id
)

func newAuditShow(api *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show what a record belongs to, and all that came of it, as a tree", Args: exit.Arguments(cobra.ExactArgs(1)),
		Long: "Shows a tree: the exec or call that a record belongs to, with the tool calls, files and approvals below it.\n" +
			"ID is that of a record, of a call of `skerry audit calls`, or of an exec.",
		RunE: func(cmd *cobra.Command, args []string) error {
			records, err := related(cmd.Context(), api, args[0])
			if err != nil {
				return err
			}
			if api.JSON {
				return output.JSON(output.Writer(cmd.OutOrStdout(), false), records)
			}
			return showTree(cmd.OutOrStdout(), records, args[0])
		},
	}
}

// related returns the records of the tree of an id, oldest first.
func related(ctx context.Context, api *client.Client, id string) ([]entry, error) {
	found := map[string]entry{}
	read := func(q url.Values) error {
		list, _, err := records[entry](ctx, api, q, relatedRead)
		for _, e := range list {
			found[e.ID] = e
		}
		return err
	}
	asked := map[string]bool{}
	ask := func(kind, id string) error {
		if id == "" || asked[kind+id] || len(found) > maxTree {
			return nil
		}
		asked[kind+id] = true
		return read(url.Values{kind: {id}})
	}
	if err := ask("q", id); err != nil {
		return nil, err
	}
	if err := ask("exec", id); err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, exit.With(exit.NoTool, "there is no record %s that you may see", argform.Line(id, 80))
	}
	for range maxDepth { // up to what it belongs to, which may be an exec with all that it did
		before := len(found)
		for _, e := range found {
			if err := ask("exec", e.Exec); err != nil {
				return nil, err
			}
			if _, ok := found[e.Parent]; !ok {
				if err := ask("q", e.Parent); err != nil {
					return nil, err
				}
			}
		}
		if len(found) == before {
			break
		}
	}
	all := make([]entry, 0, len(found))
	for _, e := range found {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b entry) int {
		if c := a.Time.Compare(b.Time); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return all, nil
}

// showTree prints each attempt with its result on one line, and what came of it below.
func showTree(w io.Writer, all []entry, marked string) error {
	children := map[string][]entry{}
	results := map[string]entry{}
	byID := map[string]entry{}
	for _, e := range all {
		byID[e.ID] = e
	}
	var roots []entry
	for _, e := range all {
		parent, ok := byID[e.Parent]
		switch {
		case ok && e.Phase != phaseAttempt && parent.Phase == phaseAttempt && parent.Action == e.Action:
			results[parent.ID] = e
		case ok && e.ID != e.Parent:
			children[e.Parent] = append(children[e.Parent], e)
		default:
			roots = append(roots, e)
		}
	}
	var show func(e entry, depth int) error
	show = func(e entry, depth int) error {
		if depth > maxDepth {
			return nil
		}
		end := e
		if r, ok := results[e.ID]; ok {
			end = r
		}
		mark := ""
		if marked == e.ID || marked == end.ID || marked == e.Exec && depth == 0 {
			mark = "  ←"
		}
		outcome := end.Outcome
		if e.Phase == phaseAttempt && end.ID == e.ID {
			outcome = "no end"
		}
		line := fmt.Sprintf("%s%s  %s  %s  %s", strings.Repeat("  ", depth), output.Time(e.Time), argform.Line(e.Action, 40), argform.Line(e.Subject, 160), argform.Line(outcome, 20))
		if end.Millis > 0 {
			line += fmt.Sprintf(" in %d ms", end.Millis)
		}
		if end.Detail != "" {
			line += "  (" + argform.Line(end.Detail, 160) + ")"
		}
		if _, err := fmt.Fprintln(w, line+mark); err != nil {
			return err
		}
		pad := strings.Repeat("  ", depth+1)
		if depth == 0 {
			fmt.Fprintf(w, "%sby %s in thread %s\n", pad, argform.Line(e.User, 80), argform.Line(e.Thread, 80)) //nolint:errcheck // the next line shows it
		}
		if len(e.Args) > 0 {
			if _, err := fmt.Fprintf(w, "%swith %s\n", pad, argform.Line(string(e.Args), 300)); err != nil {
				return err
			}
		}
		for _, child := range children[e.ID] {
			if err := show(child, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	for _, e := range roots {
		if err := show(e, 0); err != nil {
			return err
		}
	}
	return nil
}
