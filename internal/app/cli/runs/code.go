package runs

import (
	"context"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	sdk "github.com/skerry-sandbox/skerry/sdk/go"
)

// languages are those of files, by suffix.
var languages = map[string]string{
	".ts": "typescript", ".mts": "typescript", ".js": "javascript", ".mjs": "javascript", ".py": "python", ".sh": "bash", ".bash": "bash", ".wasm": "wasm",
}

// NewCode is `skerry code`.
func NewCode(api *client.Client) *cobra.Command {
	var lang, inContext, description string
	var timeout int
	var raw bool
	cmd := &cobra.Command{
		Use: "code THREAD FILE|-", Short: "Run a program text in a thread's sandbox; ends with its exit code",
		Long: "Runs a program text in a thread's sandbox; ends with its exit code. Ctrl-C ends the program.\n\n" +
			"The suffix of FILE says the language: .ts, .js, .py, .sh or .wasm. Another suffix needs --lang. What comes from standard input (-) is in the server's language, TypeScript unless changed, or that of --lang.",
		Example: "  skerry code demo hello.py\n  echo 'console.log(6*7)' | skerry code demo -\n  skerry code demo tool.wasm",
		Args:    exit.Arguments(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			chosen, err := languageOf(args[1], lang, inContext)
			if err != nil {
				return err
			}
			text, err := ReadText(cmd.InOrStdin(), args[1])
			if err != nil {
				return err
			}
			t := api.SDK().Thread(args[0])
			return watch(cmd, api, raw, Run{
				Thread: t,
				Begin: func(ctx context.Context) iter.Seq2[sdk.Event, error] {
					return t.StreamCode(ctx, codeRequest(text, chosen, inContext, description, timeout))
				},
			})
		},
	}
	cmd.Flags().StringVarP(&lang, "lang", "l", "", "ts, js, py, sh or wasm: a module of at most 3 MiB, or from - the path of one in the sandbox (default: by the suffix)")
	output.RawFlag(cmd, &raw)
	cmd.Flags().StringVar(&inContext, "context", "", "run it in this context, in its language: skerry contexts new")
	cmd.Flags().StringVar(&description, "description", "", "what the program does, for the list of execs and the audit log")
	cmd.Flags().IntVar(&timeout, "timeout", 30, "seconds, at most 120")
	return cmd
}

// languageOf is the language of a program text: as it is said, that of its context, or by the file's suffix.
func languageOf(file, said, inContext string) (string, error) {
	if said != "" || inContext != "" {
		return said, nil
	}
	if lang := languages[strings.ToLower(filepath.Ext(file))]; lang != "" {
		return lang, nil
	}
	if file == "-" {
		return "", nil // the server has a language for this
	}
	return "", exit.With(exit.Usage, "%s has no suffix that says its language (.ts, .js, .py, .sh, .wasm): add --lang", file)
}

// ReadText reads a file, or standard input when its name is -.
func ReadText(stdin io.Reader, name string) (string, error) {
	if name != "-" {
		raw, err := os.ReadFile(name)
		return string(raw), err
	}
	raw, err := io.ReadAll(stdin)
	return string(raw), err
}
