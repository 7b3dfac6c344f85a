package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	sdk "github.com/skerry-sandbox/skerry/sdk/go"
)

func newExec(api *apiClient) *cobra.Command {
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
			events := api.client().Thread(args[0]).StreamExec(cmd.Context(), sdk.Command{Argv: args[1:], TimeoutSeconds: float64(timeout)})
			res, err := stream(events, eyes{cmd.OutOrStdout(), raw}, eyes{cmd.ErrOrStderr(), raw})
			if err != nil {
				return err
			}
			return ending(res)
		},
	}
	cmd.Flags().IntVar(&timeout, "timeout", 60, "seconds, at most 3600, which is what a terminal has")
	cmd.Flags().BoolVarP(&terminal, "tty", "t", false, "give the command a terminal")
	rawFlag(cmd, &raw)
	cmd.Flags().StringVar(&join, "join", "", "with -t: the id of an exec to join instead")
	return cmd
}

// eyes writes hostile output for forEyes, unless it is wanted raw.
type eyes struct {
	w   io.Writer
	raw bool
}

func (e eyes) Write(p []byte) (int, error) {
	if e.raw || !onTerminal(e.w) {
		return e.w.Write(p)
	}
	if _, err := io.WriteString(e.w, forEyes(e.w, string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

func rawFlag(cmd *cobra.Command, raw *bool) {
	cmd.Flags().BoolVar(raw, "raw", false, "leave control sequences of hostile text as they are, on a terminal too")
}

func threadPath(thread string, parts ...string) string {
	return "/api/threads/" + url.PathEscape(thread) + "/" + strings.Join(parts, "/")
}

var languages = map[string]string{"ts": "typescript", "js": "javascript", "py": "python", "sh": "bash"}

func newCode(api *apiClient) *cobra.Command {
	var lang, inContext string
	var timeout int
	var raw bool
	cmd := &cobra.Command{
		Use: "code THREAD FILE|-", Short: "Run a program text in a thread's sandbox; ends with its exit code",
		Example: "  skerry code demo --lang py hello.py\n  echo 'console.log(6*7)' | skerry code demo -",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := readText(cmd.InOrStdin(), args[1])
			if err != nil {
				return err
			}
			res, err := api.client().Thread(args[0]).ExecuteCode(cmd.Context(), codeRequest(text, lang, inContext, timeout))
			if err != nil {
				return explain(err)
			}
			if api.json {
				return printJSON(cmd.OutOrStdout(), res)
			}
			fmt.Fprint(eyes{cmd.OutOrStdout(), raw}, res.Stdout)
			fmt.Fprint(eyes{cmd.ErrOrStderr(), raw}, res.Stderr)
			for _, r := range res.Results {
				showResult(cmd, r)
			}
			return ending(res)
		},
	}
	cmd.Flags().StringVar(&lang, "lang", "typescript", "ts, js, py or sh")
	rawFlag(cmd, &raw)
	cmd.Flags().StringVar(&inContext, "context", "", "run it in this context, in its language: skerry contexts new")
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

func newThread(api *apiClient) *cobra.Command {
	cmd := &cobra.Command{Use: "thread", Short: "List, show and delete threads"}
	cmd.AddCommand(
		&cobra.Command{Use: "ls", Short: "List your threads", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			return api.table(cmd, "/api/threads", []string{"thread_id", "sandbox.state", "sandbox.template", "last_active_at"})
		}},
		&cobra.Command{Use: "show THREAD", Short: "Show a thread as JSON", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			var v map[string]any
			if err := api.call(cmd.Context(), http.MethodGet, "/api/threads/"+url.PathEscape(args[0]), nil, &v); err != nil {
				return err
			}
			return printJSON(cmd.OutOrStdout(), v)
		}},
		&cobra.Command{Use: "rm THREAD", Short: "Delete a thread with its sandbox and files", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			return api.call(cmd.Context(), http.MethodDelete, "/api/threads/"+url.PathEscape(args[0]), nil, nil)
		}},
	)
	return cmd
}

// table prints a list of the API with the named fields as columns.
func (c *apiClient) table(cmd *cobra.Command, path string, columns []string) error {
	var list struct {
		Items []map[string]any `json:"items"`
	}
	if err := c.call(cmd.Context(), http.MethodGet, path, nil, &list); err != nil {
		return err
	}
	if c.json {
		return printJSON(cmd.OutOrStdout(), list.Items)
	}
	return writeTable(cmd.OutOrStdout(), list.Items, columns)
}

func writeTable(w io.Writer, items []map[string]any, columns []string) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, strings.ToUpper(strings.Join(columns, "\t")))
	for _, item := range items {
		cells := make([]string, len(columns))
		for i, col := range columns {
			cells[i] = cell(item, col)
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	return tw.Flush()
}

const maxCell = 44

// cell is a field of item as one short line. Control characters in it come from hostile text and
// are shown escaped, never sent to the terminal.
func cell(item map[string]any, path string) string {
	var v any = item
	for part := range strings.SplitSeq(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return ""
		}
		v = m[part]
	}
	text := ""
	switch x := v.(type) {
	case nil:
		return ""
	case string:
		text = x
		if at, err := time.Parse(time.RFC3339Nano, x); err == nil {
			text = at.Format("15:04:05.000")
		}
	case float64:
		text = strconv.FormatFloat(x, 'f', -1, 64)
	default:
		raw, err := json.Marshal(x)
		if err != nil {
			return "?"
		}
		text = string(raw)
	}
	if quoted := strconv.Quote(text); len(quoted) != len(text)+2 {
		text = quoted[1 : len(quoted)-1]
	}
	if runes := []rune(text); len(runes) > maxCell {
		text = string(runes[:maxCell-1]) + "…"
	}
	return text
}
