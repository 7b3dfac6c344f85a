package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	sdk "github.com/skerry-sandbox/skerry/sdk/go"
)

func newExec(api *client.Client) *cobra.Command {
	var timeout int
	var terminal, raw bool
	var join string
	cmd := &cobra.Command{
		Use: "exec THREAD -- COMMAND…", Short: "Run a command in a thread's sandbox; ends with its exit code",
		Long: "Run a command in a thread's sandbox; ends with its exit code.\n\n" +
			"With -t the command gets a terminal, and yours shows it: whatever the command prints reaches your terminal as it is, " +
			"control sequences included. Without -t they are left out when the output goes to a terminal, unless you say --raw.\n\n" +
			"A command in a terminal goes on when your connection is lost; --join shows it again.",
		Example: "  skerry exec demo -- ls -la\n  skerry exec demo -- sh -c 'echo $HOME | wc -c'\n  skerry exec -t demo -- bash\n  skerry exec -t demo --join 0198c0de-…",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (join == "") == (len(args) < 2) || join != "" && !terminal {
				return errors.New("name a command after --, or with -t the exec to --join")
			}
			if terminal {
				if !cmd.Flags().Changed("timeout") {
					timeout = 3600
				}
				return runTerminal(cmd, api, args[0], join, sdk.Command{Argv: args[1:], TimeoutSeconds: float64(timeout)})
			}
			events := api.SDK().Thread(args[0]).StreamExec(cmd.Context(), sdk.Command{Argv: args[1:], TimeoutSeconds: float64(timeout)})
			res, err := client.Stream(events, output.Writer(cmd.OutOrStdout(), raw), output.Writer(cmd.ErrOrStderr(), raw))
			if err != nil {
				return err
			}
			return client.Ending(res)
		},
	}
	cmd.Flags().IntVar(&timeout, "timeout", 60, "seconds, at most 3600, which is what a terminal has")
	cmd.Flags().BoolVarP(&terminal, "tty", "t", false, "give the command a terminal")
	output.RawFlag(cmd, &raw)
	cmd.Flags().StringVar(&join, "join", "", "with -t: the id of an exec to join instead")
	return cmd
}

func newCode(api *client.Client) *cobra.Command {
	var lang, inContext, description string
	var timeout int
	var raw bool
	cmd := &cobra.Command{
		Use: "code THREAD FILE|-", Short: "Run a program text in a thread's sandbox; ends with its exit code",
		Example: "  skerry code demo --lang py hello.py\n  echo 'console.log(6*7)' | skerry code demo -\n  skerry code demo --lang wasm tool.wasm",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := readText(cmd.InOrStdin(), args[1])
			if err != nil {
				return err
			}
			res, err := api.SDK().Thread(args[0]).ExecuteCode(cmd.Context(), codeRequest(text, lang, inContext, description, timeout))
			if err != nil {
				return client.Explain(err)
			}
			if api.JSON {
				return output.JSON(cmd.OutOrStdout(), res)
			}
			fmt.Fprint(output.Writer(cmd.OutOrStdout(), raw), res.Stdout)
			fmt.Fprint(output.Writer(cmd.ErrOrStderr(), raw), res.Stderr)
			for _, r := range res.Results {
				showResult(cmd, r)
			}
			return client.Ending(res)
		},
	}
	cmd.Flags().StringVar(&lang, "lang", "typescript", "ts, js, py, sh or wasm: a module of at most 3 MiB, or from - the path of one in the sandbox")
	output.RawFlag(cmd, &raw)
	cmd.Flags().StringVar(&inContext, "context", "", "run it in this context, in its language: skerry contexts new")
	cmd.Flags().StringVar(&description, "description", "", "what the program does, for the list of execs and the audit log")
	cmd.Flags().IntVar(&timeout, "timeout", 30, "seconds, at most 120")
	return cmd
}

func readText(stdin io.Reader, name string) (string, error) {
	if name != "-" {
		raw, err := os.ReadFile(name)
		return string(raw), err
	}
	raw, err := io.ReadAll(stdin)
	return string(raw), err
}

func newThread(api *client.Client) *cobra.Command {
	cmd := &cobra.Command{Use: "thread", Short: "List, show and delete threads"}
	cmd.AddCommand(
		&cobra.Command{Use: "ls", Short: "List your threads", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			return api.Table(cmd, "/api/threads", []string{"thread_id", "sandbox.state", "sandbox.template", "last_active_at"})
		}},
		&cobra.Command{Use: "show THREAD", Short: "Show a thread as JSON", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			var v map[string]any
			if err := api.Call(cmd.Context(), http.MethodGet, "/api/threads/"+url.PathEscape(args[0]), nil, &v); err != nil {
				return err
			}
			return output.JSON(cmd.OutOrStdout(), v)
		}},
		&cobra.Command{Use: "rm THREAD", Short: "Delete a thread with its sandbox and files", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			return api.Call(cmd.Context(), http.MethodDelete, "/api/threads/"+url.PathEscape(args[0]), nil, nil)
		}},
	)
	return cmd
}
