package runs

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	sdk "github.com/skerry-sandbox/skerry/sdk/go"
)

// NewContexts is "skerry contexts": the interpreters of a thread that keep their variables.
func NewContexts(api *client.Client) *cobra.Command {
	cmd := &cobra.Command{Use: "contexts", Short: "List, make, restart and end interpreters that keep their variables"}
	var lang string
	add := &cobra.Command{
		Use: "new THREAD", Short: "Make a context and print its id, for skerry code --context", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var made map[string]any
			if err := api.Call(cmd.Context(), http.MethodPost, client.ThreadPath(args[0], "contexts"), map[string]any{"language": lang}, &made); err != nil {
				return err
			}
			if api.JSON {
				return output.JSON(cmd.OutOrStdout(), made)
			}
			fmt.Fprintln(cmd.OutOrStdout(), made["context_id"])
			return nil
		},
	}
	add.Flags().StringVar(&lang, "lang", "python", "py, ts or js")
	cmd.AddCommand(add,
		&cobra.Command{Use: "ls THREAD", Aliases: []string{"list"}, Short: "List the contexts of a thread", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			return api.Table(cmd, client.ThreadPath(args[0], "contexts"), []string{"context_id", "language", "state", "runs", "last_used_at"})
		}},
		contextCommand(api, "restart", "Empty a context, or start a lost one again", http.MethodPost, "restart"),
		contextCommand(api, "interrupt", "End the run in a context, which keeps its variables", http.MethodPost, "interrupt"),
		contextCommand(api, "rm", "End a context", http.MethodDelete))
	return cmd
}

func contextCommand(api *client.Client, name, short, method string, more ...string) *cobra.Command {
	return &cobra.Command{Use: name + " THREAD CONTEXT", Short: short, Args: cobra.ExactArgs(2), RunE: func(cmd *cobra.Command, args []string) error {
		return api.Call(cmd.Context(), method, client.ThreadPath(args[0], append([]string{"contexts", args[1]}, more...)...), nil, nil)
	}}
}

// showResult prints the text of what a run in a context displayed, by MIME type, and names what a terminal cannot show.
func showResult(cmd *cobra.Command, r map[string]json.RawMessage) {
	var text string
	if json.Unmarshal(r["text/plain"], &text) == nil {
		fmt.Fprintln(output.Writer(cmd.OutOrStdout(), false), text)
	}
	var more []string
	for mime := range r {
		if mime != "text/plain" {
			more = append(more, mime)
		}
	}
	if slices.Sort(more); len(more) > 0 {
		fmt.Fprintf(output.Writer(cmd.ErrOrStderr(), false), "(also as %v: --json has all)\n", more)
	}
}

// codeRequest is the body of execute_code: the language goes with it unless a context has its own.
func codeRequest(text, lang, context, description string, timeout int) sdk.Code {
	code := sdk.Code{Code: text, ContextID: context, Description: description, TimeoutSeconds: float64(timeout)}
	if context == "" {
		code.Language = lang
	}
	switch {
	case lang != "wasm":
	case strings.HasPrefix(text, "\x00asm"):
		code.Code = base64.StdEncoding.EncodeToString([]byte(text))
	default:
		code.Code = strings.TrimSpace(text)
	}
	return code
}
