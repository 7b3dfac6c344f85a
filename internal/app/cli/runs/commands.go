package runs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/tools/argform"
	sdk "github.com/skerry-sandbox/skerry/sdk/go"
)

// Commands are those on what runs in a thread, and on its files.
func Commands(api *client.Client) []*cobra.Command {
	return []*cobra.Command{newPs(api), newTop(api), newLogs(api), newKill(api), newCp(api)}
}

func newPs(api *client.Client) *cobra.Command {
	var all, left bool
	cmd := &cobra.Command{
		Use: "ps THREAD", Short: "List what runs in a thread", Args: exit.Arguments(cobra.ExactArgs(1)),
		Example: "  skerry ps demo\n  skerry ps -a demo\n  skerry ps --left demo",
		RunE: func(cmd *cobra.Command, args []string) error {
			if left {
				return printLeft(cmd, api, args[0])
			}
			list, err := api.SDK().Thread(args[0]).Execs(cmd.Context())
			if err != nil {
				return client.Explain(err)
			}
			list = slices.DeleteFunc(list, func(e sdk.ExecInfo) bool { return !all && e.Status != sdk.StatusRunning })
			if api.JSON {
				return output.JSON(cmd.OutOrStdout(), list)
			}
			tw := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
			fmt.Fprintln(tw, "EXEC\tSTATUS\tCODE\tSTARTED\tWHAT")
			for _, e := range list {
				code := ""
				if e.ExitCode != nil {
					code = fmt.Sprint(*e.ExitCode)
				}
				fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", argform.Line(e.ExecID, 64), argform.Line(e.Status, 20), code, output.Time(e.StartedAt), argform.Line(e.Subject, 100))
			}
			return tw.Flush()
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also what has ended")
	cmd.Flags().BoolVar(&left, "left", false, "instead, the processes that commands with --leave-processes left")
	return cmd
}

func printLeft(cmd *cobra.Command, api *client.Client, thread string) error {
	list, err := api.SDK().Thread(thread).Processes.List(cmd.Context())
	if err != nil {
		return client.Explain(err)
	}
	if api.JSON {
		return output.JSON(cmd.OutOrStdout(), list)
	}
	tw := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "PID\tEXEC\tMIB\tSTARTED\tCOMMAND")
	for _, p := range list {
		started := ""
		if p.StartedAt != nil {
			started = output.Time(*p.StartedAt)
		}
		fmt.Fprintf(tw, "%d\t%s\t%.1f\t%s\t%s\n", p.PID, argform.Line(p.ExecID, 64), float64(p.RSSBytes)/(1<<20), started, argform.Line(p.Command, 100))
	}
	return tw.Flush()
}

func newLogs(api *client.Client) *cobra.Command {
	var follow, raw bool
	cmd := &cobra.Command{
		Use: "logs THREAD EXEC", Short: "Show what an exec printed, and with -f what it prints until it ends", Args: exit.Arguments(cobra.ExactArgs(2)),
		Long: "Shows what an exec printed. With -f it goes on until the exec ends; to stop following does not end the exec.",
		RunE: func(cmd *cobra.Command, args []string) error {
			t := api.SDK().Thread(args[0])
			if !follow || api.JSON {
				res, err := t.ExecResult(cmd.Context(), args[1])
				if err != nil {
					return client.Explain(err)
				}
				if api.JSON {
					return output.JSON(cmd.OutOrStdout(), res)
				}
				if res.Status != sdk.StatusRunning {
					follow = true // to its end, which has come
				} else {
					return show(cmd, res, raw)
				}
			}
			stdout, stderr := output.Writer(cmd.OutOrStdout(), raw), output.Writer(cmd.ErrOrStderr(), raw)
			f := &follower{run: Run{Thread: t, Stdout: stdout, Stderr: stderr}, exec: args[1], out: newShown(stdout), errs: newShown(stderr)}
			for e, err := range t.Follow(cmd.Context(), args[1], 0) {
				if err != nil {
					return client.Explain(err)
				}
				if e.Type == sdk.Exit {
					return f.rest(cmd.Context(), e.Result)
				}
				if err := f.show(e); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the exec ends")
	output.RawFlag(cmd, &raw)
	return cmd
}

// show prints what there is of an exec that runs.
func show(cmd *cobra.Command, res *client.Result, raw bool) error {
	if _, err := output.Writer(cmd.OutOrStdout(), raw).Write(res.StdoutBytes()); err != nil {
		return err
	}
	_, err := output.Writer(cmd.ErrOrStderr(), raw).Write(res.StderrBytes())
	return err
}

func newKill(api *client.Client) *cobra.Command {
	var signal string
	cmd := &cobra.Command{
		Use: "kill THREAD EXEC|PID…", Short: "End an exec with all that it started or left, or one process that it left, or send an exec a signal", Args: exit.Arguments(cobra.MinimumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			t := api.SDK().Thread(args[0])
			for _, id := range args[1:] {
				pid, notPID := strconv.ParseInt(id, 10, 32)
				var err error
				switch {
				case signal != "":
					err = t.Signal(cmd.Context(), id, signal)
				case notPID == nil:
					err = t.Processes.Kill(cmd.Context(), pid)
				default:
					err = t.Kill(cmd.Context(), id)
				}
				if err != nil {
					return client.Explain(err)
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&signal, "signal", "s", "", "send this signal to each of its processes instead, such as INT or HUP")
	return cmd
}

// statOf returns what a path of a thread is, nil when there is nothing.
func statOf(ctx context.Context, t *sdk.Thread, path string) (*sdk.FileEntry, error) {
	e, err := t.StatFile(ctx, path)
	if errors.Is(err, sdk.NotFound) {
		return nil, nil //nolint:nilnil // there is nothing
	}
	return e, client.Explain(err)
}
