package cli

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/skerry-sandbox/skerry/internal/app/cli/client"
	"github.com/skerry-sandbox/skerry/internal/app/cli/output"
	"github.com/skerry-sandbox/skerry/internal/sandbox"
)

func newPacks(api *client.Client) *cobra.Command {
	cmd := &cobra.Command{
		Use: "packs", Short: "See which programs offer tools to agents",
		Long: "Lists tool packs: programs outside that offer tools over a connection which they have opened.\nskerry packs call tries one of their tools.",
	}
	cmd.AddCommand(
		&cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List packs, with their state and who provides them", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			return api.Table(cmd, "/api/packs", []string{"id", "version", "state", "tool_count", "running", "tenant", "identity", "source", "server", "since", "error"})
		}},
		newPackInspect(api), newPackCall(api), newPackKeys(api),
	)
	return cmd
}

func newPackInspect(api *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "inspect NAME", Short: "Show a pack with its tools", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var p sandbox.PackInfo
			if err := api.Call(cmd.Context(), http.MethodGet, "/api/packs/"+url.PathEscape(args[0]), nil, &p); err != nil {
				return err
			}
			if api.JSON {
				return output.JSON(cmd.OutOrStdout(), p)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			at := "this server"
			if p.Server != "" {
				at = p.Server
			}
			fmt.Fprintf(w, "pack\t%s %s\nstate\t%s %s\nprovided by\t%s, from %s\nconnected to\t%s\ncalls\t%d under way of %d at most\n\n", p.ID, p.Version, p.State, p.Error, p.Identity, p.Source, at, p.Running, p.Parallel)
			for _, t := range p.Tools {
				line, _, _ := strings.Cut(t.Description, "\n")
				fmt.Fprintf(w, "%s\t%ds\t%s\t%s\n", t.Name, t.TimeoutSeconds, strings.Join(t.Capabilities, ","), output.Plain(cmd.OutOrStdout(), line))
			}
			return w.Flush()
		},
	}
}

func newPackKeys(api *client.Client) *cobra.Command {
	cmd := &cobra.Command{
		Use: "keys", Short: "Say which SSH keys may provide packs",
		Long: "Lists, adds and deletes the SSH keys that may provide packs. Those of the file authorized_packs are listed, too, and changed there.\nA bearer key with the role pack (skerry keys create --role pack) provides packs of its tenant.",
	}
	cmd.AddCommand(newPackKeyAdd(api),
		&cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List the keys", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			return api.Table(cmd, "/api/packs/keys", []string{"id", "name", "tenant", "packs", "capabilities", "cert_authority", "expires_at", "file", "created_by"})
		}},
		&cobra.Command{Use: "rm FINGERPRINT", Short: "Delete a key; what it provides ends within 5 s", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			return api.Call(cmd.Context(), http.MethodDelete, "/api/packs/keys/"+url.PathEscape(args[0]), nil, nil)
		}},
	)
	return cmd
}

// maxKeyFile bounds the file of a public key.
const maxKeyFile = 16 << 10

func newPackKeyAdd(api *client.Client) *cobra.Command {
	var k sandbox.PackKey
	var expires time.Duration
	cmd := &cobra.Command{
		Use: "add FILE", Short: "Let the public key in a file provide packs", Args: cobra.ExactArgs(1),
		Example: "  skerry packs keys add ~/.ssh/id_ed25519.pub --tenant acme --packs crm,sql-*\n  skerry packs keys add ca.pub --cert-authority --expires 720h",
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer f.Close() //nolint:errcheck // read-only
			text, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
			if err != nil {
				return err
			}
			if bytes.Contains(text, []byte("PRIVATE KEY")) {
				return fmt.Errorf("%s is a private key: name the file of the public one, %s.pub", args[0], args[0])
			}
			k.Key = strings.TrimSpace(string(text))
			if expires > 0 {
				at := time.Now().Add(expires).UTC()
				k.ExpiresAt = &at
			}
			body := map[string]any{"key": k.Key, "name": k.Name, "cert_authority": k.Authority, "tenant": k.Tenant, "packs": k.Packs, "capabilities": k.Capabilities}
			if k.ExpiresAt != nil {
				body["expires_at"] = k.ExpiresAt
			}
			var made sandbox.PackKey
			if err := api.Call(cmd.Context(), http.MethodPost, "/api/packs/keys", body, &made); err != nil {
				return err
			}
			if api.JSON {
				return output.JSON(cmd.OutOrStdout(), made)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "added %s\n", made.ID)
			return err
		},
	}
	cmd.Flags().StringVar(&k.Name, "name", "", "for people; that of the key when absent")
	cmd.Flags().StringVar(&k.Tenant, "tenant", "", "whose users get the packs; all when absent")
	cmd.Flags().StringSliceVar(&k.Packs, "packs", nil, "the only packs: names, or the beginning of names with a * behind it")
	cmd.Flags().StringSliceVar(&k.Capabilities, "capabilities", nil, "the only capabilities that its tools may require")
	cmd.Flags().BoolVar(&k.Authority, "cert-authority", false, "certificates that it signed count, and not the key itself")
	cmd.Flags().DurationVar(&expires, "expires", 0, "for how long the key is good; without an end when absent")
	return cmd
}
