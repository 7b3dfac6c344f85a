package runs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	sdk "github.com/skerry-sandbox/skerry/sdk/go"
)

// execFlags are the flags of `skerry exec`.
type execFlags struct {
	timeout                               int
	terminal, input, detached, raw, leave bool
	join, cwd                             string
	env, secrets                          []string
	redactEnv                             bool
}

// NewExec is `skerry exec`.
func NewExec(api *client.Client) *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use: "exec THREAD -- COMMAND…", Short: "Run a command in a thread's sandbox; ends with its exit code",
		Long: "Run a command in a thread's sandbox; ends with its exit code.\n\n" +
			"The command gets your input when that is a pipe or a file; -i passes a terminal's, too, and -i=false nothing. A pipe or file gets " +
			"all of the output: when some is missing, the exit code is 5 and stderr says why. Ctrl-C ends the command. -d starts it and prints its id.\n\n" +
			"With -t the command gets a terminal, and yours shows it: whatever the command prints reaches your terminal as it is, " +
			"control sequences included. Without -t they are left out when the output goes to a terminal, unless you say --raw.\n\n" +
			"A command in a terminal goes on when your connection is lost; --join shows it again.",
		Example: "  skerry exec demo -- ls -la\n  skerry exec demo -- sh -c 'echo $HOME | wc -c'\n  echo hi | skerry exec demo cat\n" +
			"  skerry exec -e LEVEL=debug --env-secret TOKEN=github demo env\n  skerry exec -it demo bash\n  skerry exec -t demo --join 0198c0de-…",
		Args: exit.Arguments(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, api, args[0], args[1:]) },
	}
	cmd.Flags().IntVar(&f.timeout, "timeout", 60, "seconds, at most 3600, which is what a terminal has")
	cmd.Flags().BoolVarP(&f.terminal, "tty", "t", false, "give the command a terminal")
	cmd.Flags().BoolVarP(&f.input, "interactive", "i", false, "pass your input on, also from a terminal")
	cmd.Flags().BoolVarP(&f.detached, "detach", "d", false, "start the command, print the id of its exec, and leave it running")
	cmd.Flags().BoolVar(&f.leave, "leave-processes", false, "what outlives the command stays in the sandbox: a server behind nohup and &, say; skerry ps --left THREAD lists it")
	cmd.Flags().StringVarP(&f.cwd, "workdir", "w", "", "folder in the sandbox (default: /mnt/user-data/workspace)")
	cmd.Flags().StringArrayVarP(&f.env, "env", "e", nil, "NAME=VALUE, or NAME with its value here; may be given many times")
	cmd.Flags().StringArrayVar(&f.secrets, "env-secret", nil, "NAME=SECRET: a variable with the value of a secret of the server; may be given many times")
	cmd.Flags().BoolVar(&f.redactEnv, "redact-env", false, "hide the values of --env in output, from 8 bytes on")
	output.RawFlag(cmd, &f.raw)
	cmd.Flags().StringVar(&f.join, "join", "", "with -t: the id of an exec to join instead")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return exit.With(exit.Usage, "%w\nWhat belongs to the command stands behind --: skerry exec THREAD -- COMMAND -x", err)
	})
	return cmd
}

// command is what the flags ask for.
func (f *execFlags) command(argv []string) (sdk.Command, error) {
	env, err := variables("--env", f.env, true)
	if err != nil {
		return sdk.Command{}, err
	}
	secrets, err := variables("--env-secret", f.secrets, false)
	return sdk.Command{
		Argv: argv, TimeoutSeconds: float64(f.timeout), Cwd: f.cwd, Env: env, EnvSecrets: secrets, RedactEnv: f.redactEnv, LeaveProcesses: f.leave,
	}, err
}

// variables reads NAME=VALUE. A name alone has the value of the variable here.
func variables(flag string, given []string, fromHere bool) (map[string]string, error) {
	var vars map[string]string
	for _, v := range given {
		name, value, ok := strings.Cut(v, "=")
		if !ok && fromHere {
			if value, ok = os.LookupEnv(name); !ok {
				continue // as docker does: what is not set here, is not there
			}
		}
		if !ok || name == "" {
			return nil, exit.With(exit.Usage, "%s %q: write NAME=…", flag, name) // the value may be a secret
		}
		if vars == nil {
			vars = map[string]string{}
		}
		vars[name] = value
	}
	return vars, nil
}

func (f *execFlags) run(cmd *cobra.Command, api *client.Client, thread string, argv []string) error {
	if (f.join == "") == (len(argv) == 0) || f.join != "" && !f.terminal {
		return errors.New("name a command, or with -t the exec to --join")
	}
	if f.terminal && f.detached {
		return exit.With(exit.Usage, "-t shows a terminal, and -d leaves at once: use one of them")
	}
	if f.terminal && !cmd.Flags().Changed("timeout") {
		f.timeout = 3600
	}
	command, err := f.command(argv)
	if err != nil {
		return err
	}
	t := api.SDK().Thread(thread)
	switch {
	case f.terminal:
		return runTerminal(cmd, api, thread, f.join, command)
	case f.detached:
		return f.detach(cmd, api, t, command)
	}
	stdin := f.stdin(cmd)
	if stdin != nil {
		open := true
		command.KeepStdin = &open
	}
	if !api.JSON {
		command.MaxOutputBytes = outputAtOnce
	}
	return watch(cmd, api, f.raw, Run{
		Thread: t, Stdin: stdin,
		Begin: func(ctx context.Context) iter.Seq2[sdk.Event, error] { return t.StreamExec(ctx, command) },
	})
}

// detach starts a command and leaves it running.
func (f *execFlags) detach(cmd *cobra.Command, api *client.Client, t *sdk.Thread, command sdk.Command) error {
	command.KeepStdin = &f.input
	res, err := t.Start(cmd.Context(), command)
	if err != nil {
		return client.Explain(err)
	}
	if api.JSON {
		return output.JSON(cmd.OutOrStdout(), res)
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), res.ExecID)
	return err
}

// stdin is the input that the command gets: what is piped or redirected, a terminal only when it is asked for.
func (f *execFlags) stdin(cmd *cobra.Command) io.Reader {
	in := cmd.InOrStdin()
	if cmd.Flags().Changed("interactive") {
		if f.input {
			return in
		}
		return nil
	}
	if file, ok := in.(*os.File); ok {
		info, err := file.Stat()
		if err != nil || info.Mode()&os.ModeCharDevice != 0 { // a terminal, or /dev/null
			return nil
		}
	}
	return in
}

// watch shows an exec, or with --json its result alone, and ends with its exit code.
func watch(cmd *cobra.Command, api *client.Client, raw bool, r Run) error {
	r.Stdout, r.Stderr = output.Writer(cmd.OutOrStdout(), raw), output.Writer(cmd.ErrOrStderr(), raw)
	if api.JSON {
		r.Stdout, r.Stderr = io.Discard, io.Discard
	}
	res, err := r.Follow(cmd.Context())
	switch {
	case res == nil:
		return err
	case api.JSON:
		err = output.JSON(cmd.OutOrStdout(), res)
	default:
		for _, shown := range res.Results {
			showResult(cmd, shown)
		}
	}
	if err != nil {
		return err
	}
	return client.Ending(res)
}
