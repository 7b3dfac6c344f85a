package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/platform/lockedfile"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
	"github.com/skerry-sandbox/skerry/internal/tools/argform"
)

// mcpCall is one `skerry mcp call`.
type mcpCall struct {
	*mcpFlags
	args        string
	interactive bool
	output      string
}

func newMCPCall(f *mcpFlags) *cobra.Command {
	c := &mcpCall{mcpFlags: f}
	cmd := &cobra.Command{
		Use: "call SERVER.TOOL", Short: "Call a tool",
		Long: "Calls a tool, and prints its result: a text as it is, all else as JSON. Without --args and --interactive the\n" +
			"tool is called without arguments. The tool's printed name (SERVER__TOOL) works too.\n\n" +
			"--interactive asks for each argument on standard error and reads the answers from standard input, which may\n" +
			"be a pipe with an answer a line; with --args it asks for those that are missing there. " + argform.Help + "\n\n" +
			"With --json the whole answer is printed, {\"result\", \"is_error\", \"ms\", \"call_id\"}, and a failure as\n" +
			"{\"error\": {\"code\", \"message\"}}. On a terminal control sequences in results are left out; a pipe and --output get\n" +
			"them as they are.\n\n" + whereHelp + "\n\n" + exitCodesHelp,
		Example: "  skerry mcp call filesystem.read_text_file --args '{\"path\": \"/srv/shared/a.txt\"}'\n" +
			"  skerry mcp call memory.create_entities --interactive\n" +
			"  echo '{\"message\": \"hi\"}' | skerry mcp call everything.echo --args - --json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := c.run(cmd, args[0])
			if err != nil && f.api.JSON && !isToolError(err) {
				// For a program: the same on standard output, in a form that it can read.
				if e := output.JSON(cmd.OutOrStdout(), map[string]any{"error": map[string]any{"code": codeOf(err), "message": err.Error()}}); e != nil {
					return e
				}
			}
			return err
		},
	}
	cmd.Flags().StringVar(&c.args, "args", "", client.ArgumentsHelp)
	cmd.Flags().BoolVarP(&c.interactive, "interactive", "i", false, "ask for the arguments")
	cmd.Flags().StringVarP(&c.output, "output", "o", "", "write the result to this file")
	return cmd
}

// errTool is that a tool answered with an error, which is printed already.
var errTool = errors.New("the tool answered with an error")

func isToolError(err error) bool { return errors.Is(err, errTool) }

// codeOf is the stable word of an error.
func codeOf(err error) string {
	var f *exit.Failure
	if kind := sandbox.KindOf(err); kind != sandbox.Internal {
		return string(kind)
	}
	if errors.As(err, &f) {
		switch f.Code {
		case exit.Usage:
			return string(sandbox.Invalid)
		case exit.NoTool:
			return string(sandbox.NotFound)
		}
	}
	return string(sandbox.Unavailable)
}

func (c *mcpCall) run(cmd *cobra.Command, name string) (err error) {
	input, err := c.given(cmd.InOrStdin())
	if err != nil {
		return err
	}
	source, _, err := c.open(cmd, nil)
	if err != nil {
		return exit.Of(err)
	}
	defer func() { err = joined(err, source.close()) }()
	if c.interactive {
		if input, err = c.ask(cmd, source, name, input); err != nil {
			return exit.Of(err)
		}
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), c.timeout)
	defer cancel()
	res, err := source.call(ctx, name, input)
	if sandbox.KindOf(err) == sandbox.Invalid && !c.interactive {
		return exit.With(exit.Usage, "%w\n--interactive asks for each argument; `skerry mcp ls --detailed` shows them", err)
	}
	if err != nil {
		return exit.Of(err)
	}
	return c.show(cmd, res)
}

// given are the arguments of --args.
func (c *mcpCall) given(stdin io.Reader) (json.RawMessage, error) {
	if c.args == "-" && c.interactive {
		return nil, exit.With(exit.Usage, "--args - and --interactive both read standard input: give the arguments in --args itself")
	}
	return client.Arguments("--args", c.args, stdin)
}

// ask fills the form of a tool. Its questions go to standard error, so that the result stays alone.
func (c *mcpCall) ask(cmd *cobra.Command, source toolSource, name string, given json.RawMessage) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), c.timeout)
	defer cancel()
	tool, err := owner(ctx, source, name)
	if err != nil {
		return nil, err
	}
	w := cmd.ErrOrStderr()
	fmt.Fprintf(w, "%s.%s: %s\n%s\n\n", argform.Line(tool.Server, 60), argform.Line(tool.Name, 100), argform.Line(tool.Description, 300), argform.Help)
	lines := argform.NewLines(cmd.InOrStdin())
	defer lines.Close()
	input, err := argform.Ask(cmd.Context(), tool.Input, given, lines, w)
	switch {
	case errors.Is(err, argform.ErrEnded):
		return nil, exit.With(exit.Usage, "%w", err)
	case err != nil:
		return nil, err
	}
	fmt.Fprintf(w, "\ncalling with %s\n", argform.Line(string(input), 1000))
	return input, nil
}

// show prints a result, or writes it to a file.
func (c *mcpCall) show(cmd *cobra.Command, res sandbox.ToolResult) error {
	text, err := resultText(res, c.api.JSON)
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	if c.output == "" {
		fmt.Fprintln(w, output.Plain(w, text))
	} else {
		if err := writeResult(c.output, text); err != nil {
			return exit.With(exit.Failed, "the tool was called, but its result cannot be written: %w", err)
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%d bytes written to %s\n", len(text), c.output)
	}
	if res.IsError {
		return exit.As(exit.Tool, errTool)
	}
	return nil
}

// resultText is a result for a person, or the whole answer as JSON.
func resultText(res sandbox.ToolResult, asJSON bool) (string, error) {
	var b bytes.Buffer
	if asJSON {
		if len(res.Result) == 0 {
			res.Result = json.RawMessage("null")
		}
		err := output.JSON(&b, res)
		return string(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), err
	}
	var text string
	if json.Unmarshal(res.Result, &text) == nil {
		return text, nil
	}
	if err := json.Indent(&b, res.Result, "", "  "); err != nil {
		return "", fmt.Errorf("the result is not JSON: %w", err)
	}
	return b.String(), nil
}

// writeResult writes a file whole or not at all. A device or a pipe is written as it is.
func writeResult(file, text string) error {
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return os.WriteFile(file, []byte(text), 0o644)
	}
	return lockedfile.ReplaceAs(file, []byte(text), 0o644)
}
