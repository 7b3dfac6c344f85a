package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/argform"
)

// watchEvery is how often `skerry approvals watch` asks.
const watchEvery = 2 * time.Second

func newApprovals(api *client.Client) *cobra.Command {
	cmd := &cobra.Command{
		Use: "approvals", Short: "Decide on tool calls that wait for a person",
		Long: "Calls that the policy lets through only with an approval wait here. Without a decision in time they are denied.",
	}
	cmd.AddCommand(newApprovalsList(api), newApprovalsWatch(api), newDecide(api, "approve"), newDecide(api, "deny"),
		&cobra.Command{Use: "show ID", Short: "Show a request with all that it is about", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			var a sandbox.Approval
			if err := api.Call(cmd.Context(), http.MethodGet, approvalPath(args[0]), nil, &a); err != nil {
				return err
			}
			return showApproval(api, cmd.OutOrStdout(), a)
		}},
	)
	return cmd
}

func approvalPath(id string) string { return "/api/approvals/" + url.PathEscape(id) }

func newApprovalsList(api *client.Client) *cobra.Command {
	query := map[string]*string{}
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List requests, newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			values := url.Values{}
			for name, v := range query {
				if *v != "" {
					values.Set(name, *v)
				}
			}
			return api.Table(cmd, "/api/approvals?"+values.Encode(), []string{"id", "state", "tool", "user", "thread_id", "why", "created_at", "expires_at"})
		},
	}
	for name, usage := range map[string]string{
		"state": "only those that are pending, approved, denied, expired or cancelled", "thread": "only of this thread", "user": "only of this user",
		"tool": "only of this tool", "limit": "how many, at most 1000", "cursor": "next_cursor of the page before",
	} {
		query[name] = cmd.Flags().String(name, "", usage)
	}
	return cmd
}

func newDecide(api *client.Client, decision string) *cobra.Command {
	var reason, scope string
	cmd := &cobra.Command{
		Use: decision + " ID", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]string{"decision": decision, "reason": reason}
			if scope != "" {
				body["scope"] = scope
			}
			var a sandbox.Approval
			if err := api.Call(cmd.Context(), http.MethodPost, approvalPath(args[0]), body, &a); err != nil {
				return err
			}
			if api.JSON {
				return output.JSON(cmd.OutOrStdout(), a)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", argform.Line(a.Tool, 200), a.State)
			return err
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record; of a denial, for the agent too")
	cmd.Short = "Deny a call"
	if decision == "approve" {
		cmd.Short = "Let a call be made"
		cmd.Flags().StringVar(&scope, "scope", "", "once (when absent), arguments (each call of the tool in the thread with exactly these) or thread (each call of it in the thread)")
	}
	return cmd
}

// showApproval prints a request for a person. Arguments and the tool's own words are hostile text.
func showApproval(api *client.Client, w io.Writer, a sandbox.Approval) error {
	if api.JSON {
		return output.JSON(w, a)
	}
	var text strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&text, "%-10s %s\n", name, argform.Line(value, 2000))
		}
	}
	line("id", a.ID)
	line("state", string(a.State))
	line("tool", a.Tool)
	line("server", a.Server)
	line("skill", a.Skill)
	line("why", a.Why)
	line("user", a.User)
	line("thread", a.Thread)
	line("exec", a.Exec)
	line("request", a.Request)
	line("key", a.KeyID)
	line("hints", string(a.Annotations))
	line("created", output.Time(a.CreatedAt))
	line("expires", output.Time(a.ExpiresAt))
	if d := a.Decision; d != nil {
		line("decided", strings.TrimSpace(fmt.Sprintf("%s by %s (%s) %s", output.Time(d.At), d.By, d.How, d.Scope)))
		line("reason", d.Reason)
	}
	line("hash", a.ArgsHash)
	args := &bytes.Buffer{}
	if json.Indent(args, a.Arguments, "", "  ") != nil {
		args.Write(a.Arguments)
	}
	fmt.Fprintf(&text, "arguments (%d bytes)\n%s\n", a.Bytes, argform.Plain(args.String()))
	_, err := io.WriteString(w, text.String())
	return err
}

func newApprovalsWatch(api *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "watch", Short: "Show each request when it comes, until interrupted", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return watchApprovals(cmd.Context(), api, cmd.OutOrStdout())
		},
	}
}

func watchApprovals(ctx context.Context, api *client.Client, w io.Writer) error {
	shown := map[string]bool{}
	for tick := time.NewTicker(watchEvery); ; {
		var list struct{ Items []sandbox.Approval }
		if err := api.Call(ctx, http.MethodGet, "/api/approvals?state="+string(sandbox.ApprovalPending)+"&limit=1000", nil, &list); err != nil {
			return err
		}
		pending := map[string]bool{}
		for _, a := range slices.Backward(list.Items) { // oldest first
			pending[a.ID] = true
			if shown[a.ID] {
				continue
			}
			if err := showApproval(api, w, a); err != nil {
				return err
			}
			if !api.JSON {
				fmt.Fprintf(w, "  skerry approvals approve %s\n  skerry approvals deny %s --reason …\n\n", argform.Line(a.ID, 64), argform.Line(a.ID, 64))
			}
		}
		shown = pending
		select {
		case <-ctx.Done():
			tick.Stop()
			return ctx.Err()
		case <-tick.C:
		}
	}
}
