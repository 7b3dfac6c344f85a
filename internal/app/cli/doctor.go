package cli

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/exit"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/tools/argform"
)

// newDoctor examines this machine, where the system is one for servers, or asks a server what it finds of itself.
func newDoctor(api *client.Client) *cobra.Command {
	const serverOnly = "server-only"
	var only bool
	cmd, settings := newLocalDoctor(api)
	local := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !only {
			return local(cmd, args)
		}
		if i := slices.IndexFunc(settings, cmd.Flags().Changed); i >= 0 {
			return exit.With(exit.Usage, "--%s looks at no configuration of this machine: leave --%s out", serverOnly, settings[i])
		}
		return doctorOf(cmd, api)
	}
	cmd.Flags().BoolVar(&only, serverOnly, false, "ask the server what it finds of itself, and look at nothing here")
	return cmd
}

// doctorOf prints what a server finds of itself. Its texts are not this program's.
func doctorOf(cmd *cobra.Command, api *client.Client) error {
	var found struct {
		At    time.Time `json:"at"`
		Items []struct {
			Check  string `json:"check"`
			Name   string `json:"name,omitempty"`
			State  string `json:"state"`
			Detail string `json:"detail"`
			Fix    string `json:"fix,omitempty"`
		} `json:"items"`
	}
	if err := api.Call(cmd.Context(), http.MethodGet, "/api/doctor", nil, &found); err != nil {
		return err
	}
	states := map[string]int{}
	for _, f := range found.Items {
		states[f.State]++
	}
	serves, w := states["problem"] == 0, cmd.OutOrStdout()
	if api.JSON {
		if err := output.JSON(w, map[string]any{"at": found.At, "serves": serves, "checks": found.Items}); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(w, "%s, %s\n\n", api.Server, output.Time(found.At))
		for _, f := range found.Items {
			output.Finding(w, argform.Line(f.State, 20), argform.Line(strings.TrimSpace(f.Check+" "+f.Name), 160), argform.Line(f.Detail, 600), argform.Line(f.Fix, 600))
		}
		fmt.Fprintf(w, "\n%s, %s.\n", output.Count(states["problem"], "problem"), output.Count(states["warning"], "warning"))
	}
	if !serves {
		return exit.Code(exit.Failed)
	}
	return nil
}
