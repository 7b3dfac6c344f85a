package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/policy"
)

func newPolicy(api *client.Client) *cobra.Command {
	cmd := &cobra.Command{
		Use: "policy", Short: "Show, check, try and replace the rules that say who may call what",
		Long: "Shows, checks, tries and replaces the rules that say who may call what.\nThey are one YAML file (docs/policy.md); `skerry policy default` prints the built-in one, to begin with.",
	}
	cmd.AddCommand(
		&cobra.Command{Use: "default", Short: "Print the built-in rules", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(policy.Default().Text)
			return err
		}},
		&cobra.Command{Use: "check FILE", Short: "Check a file of rules, and run its tests", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			rules, err := readRules(cmd.InOrStdin(), args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: right; digest %s, %d tests passed\n", args[0], rules.Digest, rules.Tests())
			return err
		}},
		newPolicyTest(api), newPolicyReplay(api), newPolicyShow(api), newPolicySet(api),
	)
	return cmd
}

// readRules reads and checks a file of rules, "-" is the standard input.
func readRules(stdin io.Reader, file string) (*policy.Rules, error) {
	var text []byte
	var err error
	if file == "-" {
		text, err = io.ReadAll(io.LimitReader(stdin, policy.MaxFile+1))
	} else {
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, exit.With(exit.Usage, "%w", err)
	}
	rules, err := policy.Parse(text)
	if err != nil {
		return nil, exit.With(exit.Usage, "%s:\n%w", file, err)
	}
	return rules, nil
}

func scopeFlag(cmd *cobra.Command, tenant *bool) {
	cmd.Flags().BoolVar(tenant, "tenant", false, "the tenant's own rules, also for an operator")
}

func policyPath(path string, tenant bool) string {
	if tenant {
		return path + "?scope=tenant"
	}
	return path
}

func newPolicyTest(api *client.Client) *cobra.Command {
	var call, record, expect string
	var tenant bool
	cmd := &cobra.Command{
		Use: "test FILE", Short: "Say what the rules of a file would do with a call",
		Long: "Shows what the rules of a file would do with a call: a made-up one (--call, which needs no server), or one from the audit log of a server (--record), whose arguments are tried as they were kept, which is redacted.",
		Example: `  skerry policy test policy.yaml --call '{"server":"github","tool":"delete_repository","args":{"repo":"a/b"}}'
  skerry policy test policy.yaml --record 01990f5e-7c1a-7b7e-9d38-2f8f2c1f0a11 --expect deny`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			rules, err := readRules(cmd.InOrStdin(), args[0])
			if err != nil {
				return err
			}
			trial, err := tryRules(cmd, api, rules, call, record, tenant)
			if err != nil {
				return err
			}
			if err := showTrial(cmd.OutOrStdout(), api.JSON, trial); err != nil {
				return err
			}
			if expect != "" && string(trial.Effect) != expect {
				return fmt.Errorf("it is %s, not %s", trial.Effect, expect)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&call, "call", "", "a call as JSON: server, tool, args, annotations, user, role …; - reads it from the standard input")
	cmd.Flags().StringVar(&record, "record", "", "id of the audit record of an attempt")
	cmd.Flags().StringVar(&expect, "expect", "", "fail unless this comes of it: allow, require_approval or deny")
	scopeFlag(cmd, &tenant)
	cmd.MarkFlagsOneRequired("call", "record")
	cmd.MarkFlagsMutuallyExclusive("call", "record")
	return cmd
}

func tryRules(cmd *cobra.Command, api *client.Client, rules *policy.Rules, call, record string, tenant bool) (policy.Trial, error) {
	var trial policy.Trial
	if record != "" {
		err := api.Call(cmd.Context(), http.MethodPost, policyPath("/api/policy/test", tenant), map[string]string{"text": string(rules.Text), "record": record}, &trial)
		return trial, err
	}
	if call == "-" {
		text, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), 4<<20))
		if err != nil {
			return trial, err
		}
		call = string(text)
	}
	sample, err := policy.ReadSample([]byte(call))
	if err != nil {
		return trial, exit.With(exit.Usage, "--call: %w", err)
	}
	d := (&policy.Set{Global: rules}).Decide(cmd.Context(), sample.Request())
	return policy.NewTrial(d, sample, nil), nil
}

func showTrial(w io.Writer, asJSON bool, t policy.Trial) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(t)
	}
	var b strings.Builder
	fmt.Fprintln(&b, t.Effect)
	if len(t.Why.Rules) == 0 {
		fmt.Fprintln(&b, "  no rule holds: the default")
	}
	for _, r := range t.Why.Rules {
		effect := string(r.Effect)
		if effect == "" {
			effect = "limits or redacts"
		}
		fmt.Fprintf(&b, "  rule %s: %s", r.Rule, effect)
		if r.Text != "" {
			fmt.Fprintf(&b, " (%s)", r.Text)
		}
		fmt.Fprintln(&b)
		for _, h := range r.Held {
			fmt.Fprintf(&b, "    %s\n", h)
		}
		if r.Error != "" {
			fmt.Fprintf(&b, "    %s\n", r.Error)
		}
	}
	if l := t.Limits; l != nil {
		for _, r := range l.Rates {
			fmt.Fprintf(&b, "  rate: %s\n", r)
		}
		if l.Bytes > 0 {
			fmt.Fprintf(&b, "  result: at most %d bytes\n", l.Bytes)
		}
		if l.Time != "" {
			fmt.Fprintf(&b, "  time: at most %s\n", l.Time)
		}
	}
	if h := t.Hidden; h != nil {
		fmt.Fprintf(&b, "  redacted: args [%s], result [%s]\n", strings.Join(h.Args, ", "), strings.Join(h.Result, ", "))
	}
	for _, n := range t.Notes {
		fmt.Fprintf(&b, "  note: %s\n", n)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// shownRules is the answer of GET and PUT /api/policy.
type shownRules struct {
	Scope   string `json:"scope"`
	Source  string `json:"source"`
	Text    string `json:"text"`
	Digest  string `json:"digest"`
	Problem string `json:"problem,omitempty"`
}

func newPolicyShow(api *client.Client) *cobra.Command {
	var tenant bool
	cmd := &cobra.Command{Use: "show", Short: "Print the rules that count on the server", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		var r shownRules
		if err := api.Call(cmd.Context(), http.MethodGet, policyPath("/api/policy", tenant), nil, &r); err != nil {
			return err
		}
		if api.JSON {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(r)
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "rules of the %s: %s %s\n", r.Scope, r.Source, r.Digest)
		if r.Problem != "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "what stands in the file does not count:\n%s\n", r.Problem)
		}
		_, err := io.WriteString(cmd.OutOrStdout(), r.Text)
		return err
	}}
	scopeFlag(cmd, &tenant)
	return cmd
}

func newPolicySet(api *client.Client) *cobra.Command {
	var tenant bool
	var digest string
	cmd := &cobra.Command{Use: "set FILE", Short: "Replace the rules of the server by those of a file", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		rules, err := readRules(cmd.InOrStdin(), args[0])
		if err != nil {
			return err
		}
		var r shownRules
		if err := api.Call(cmd.Context(), http.MethodPut, policyPath("/api/policy", tenant), map[string]string{"text": string(rules.Text), "digest": digest}, &r); err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "rules of the %s: %s\n", r.Scope, r.Digest)
		return err
	}}
	scopeFlag(cmd, &tenant)
	cmd.Flags().StringVar(&digest, "digest", "", "of the rules that are to be replaced; others are left alone")
	return cmd
}
