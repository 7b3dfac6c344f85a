package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/platform/every"
	"github.com/skerry-sandbox/skerry/internal/tools/argform"
	sdk "github.com/skerry-sandbox/skerry/sdk/go"
)

const (
	// topEvery is the pause between two looks.
	topEvery = 2 * time.Second
	// topRows is how many processes a terminal shows.
	topRows = 20
	// clearScreen moves the cursor home and clears what is behind it.
	clearScreen = "\x1b[H\x1b[J"
)

// usage is what a thread's sandbox and its processes use at a moment.
type usage struct {
	Metrics   *sdk.SandboxMetrics `json:"metrics,omitempty"` // nil: the driver does not measure it
	Processes []sdk.Process       `json:"processes"`
	at        time.Time
}

func newTop(api *client.Client) *cobra.Command {
	var once bool
	cmd := &cobra.Command{
		Use: "top THREAD", Short: "Show what a thread's sandbox uses, and its processes", Args: exit.Arguments(cobra.ExactArgs(1)),
		Long: "Shows what the sandbox computes and holds, what its files take, and the processes of its commands, those that compute most first. " +
			"On a terminal it goes on until Ctrl-C; elsewhere, and with --once or --json, it looks once, for two seconds.",
		Example: "  skerry top demo\n  skerry top --once demo",
		RunE: func(cmd *cobra.Command, args []string) error {
			t := api.SDK().Thread(args[0])
			before, err := used(cmd.Context(), t)
			if err != nil {
				return client.Explain(err)
			}
			w := cmd.OutOrStdout()
			once = once || api.JSON || !output.OnTerminal(w)
			for range every.Tick(cmd.Context(), topEvery) {
				now, err := used(cmd.Context(), t)
				if errors.Is(err, context.Canceled) {
					return nil
				}
				if err != nil {
					return client.Explain(err)
				}
				if api.JSON {
					return output.JSON(w, now)
				}
				if !once {
					io.WriteString(w, clearScreen) //nolint:errcheck // the next write tells
				}
				if err := printTop(w, before, now, once); err != nil || once {
					return err
				}
				before = now
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "look once")
	return cmd
}

func used(ctx context.Context, t *sdk.Thread) (u usage, err error) {
	u.Metrics, err = t.Processes.Metrics(ctx)
	var refused *sdk.Error
	if errors.As(err, &refused) && refused.Code == sdk.NotSupported {
		u.Metrics, err = nil, nil
	}
	if err == nil {
		u.Processes, err = t.Processes.All(ctx)
	}
	u.at = time.Now()
	return u, err
}

// printTop prints what was used between two looks.
func printTop(w io.Writer, before, now usage, all bool) error {
	passed := max(1, float64(now.at.Sub(before.at).Milliseconds()))
	if m, old := now.Metrics, before.Metrics; m != nil && old != nil {
		cores := float64(m.CPUMillis-old.CPUMillis) / max(1, float64(m.At.Sub(old.At).Milliseconds()))
		fmt.Fprintf(w, "CPU %.2f of %s cores   memory %.0f of %s MiB   processes %d of %s%s\n\n", max(0, cores), limit(m.CPULimitMillis, 1000), mib(m.MemoryBytes),
			limit(m.MemoryLimitBytes, 1<<20), m.PIDs, limit(m.PIDsLimit, 1), files(m))
	} else {
		fmt.Fprint(w, "the driver of this server does not measure sandboxes\n\n")
	}
	was := map[int64]int64{}
	for _, p := range before.Processes {
		was[p.PID] = p.CPUMillis
	}
	computed := func(p sdk.Process) int64 { return max(0, p.CPUMillis-was[p.PID]) }
	list := slices.SortedStableFunc(slices.Values(now.Processes), func(a, b sdk.Process) int { return cmp.Compare(computed(b), computed(a)) })
	hidden := 0
	if !all && len(list) > topRows {
		list, hidden = list[:topRows], len(list)-topRows
	}
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "PID\tCPU %\tMIB\tTHREADS\tEXEC\tCOMMAND")
	for _, p := range list {
		exec := argform.Line(p.ExecID, 64)
		if !p.Running {
			exec += " (ended)"
		}
		share := 100 * float64(computed(p)) / passed
		fmt.Fprintf(tw, "%d\t%.0f\t%.1f\t%d\t%s\t%s\n", p.PID, share, mib(p.RSSBytes), p.Threads, exec, argform.Line(p.Command, 100))
	}
	if err := tw.Flush(); err != nil || hidden == 0 {
		return err
	}
	_, err := fmt.Fprintf(w, "… and %d more\n", hidden)
	return err
}

// files is what the thread's files take, where that is known.
func files(m *sdk.SandboxMetrics) string {
	if m.Disk == nil {
		return ""
	}
	return fmt.Sprintf("   files %.0f of %s MiB", mib(m.Disk.Bytes), limit(m.Disk.LimitBytes, 1<<20))
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// limit is a bound in a unit, as a person writes it.
func limit(n, unit int64) string {
	if n == 0 {
		return "any number of"
	}
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", float64(n)/float64(unit)), "0"), ".")
}
